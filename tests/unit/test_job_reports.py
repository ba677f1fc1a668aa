"""A worker's reports: each kind arrives as it was sent, under the names that machines read."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tfrun.job import reports
from tfrun.job.record import Record
from tfrun.job.reports import Report, decode, encode, of, read

# Whoever reads events.jsonl counts on these; in brackets what is left out where there is nothing.
FIELDS = {
    "error": "type message traceback [notes exceptions cause context line code where]",
    "done": "collectives",
    "ended_at": "step",
    "stands": "number mark where",
    "wanted_back": "",
    "job_saved": "step",
    "job_not_saved": "reason for_good",
    "doubt": "code text [alone]",
    "one_replica_each": "reason",
    "snapshot": "key step seconds",
    "resumed": "key step",
    "first_step": "key step made",
    "applied": "key step",
    "stayed": "key step",
    "comes": "",
    "can_stay": "can why overlaps",
    "ready": "",
    "loop_traced": "call trace",
    "checkpoint": "step",
    "saved": "step",
    "restored": "step",
    "notice": "text",
    "training": "global_batch samples workers rate compression [script_batch]",
    "fit_begin": "epochs steps",
    "epoch_end": "epoch steps seconds [steps_per_second samples samples_per_second] logs",
    "fit_end": "steps seconds [steps_per_second samples samples_per_second] logs",
    "progress": "epoch in_epoch step steps seconds split rss cpu [network network_to aside logs "
    "gpu call]",
    "staleness": "histogram",
    "evaluated": "call step logs",
    "skipped": "source sample why",
    "profiled": "name first last problem",
    "kept": "",
    "weights": "call digest",
    "measured": "workers all_reduce link gpus threads [small_bytes pack_bytes] step_seconds",
}
VALUES = {"str": "x", "int": 3, "float": 0.5, "bool": True, "list": [1, None], "dict": {"a": "NaN"}}
VALUES |= {"list[str]": ["x"], "list[int]": [1, 2, 3], "list[float]": [0.5]}


def kinds(base: type[Record] = Report) -> dict[str, type[Report]]:
    found = {}
    for cls in base.__subclasses__():
        found |= kinds(cls) | ({cls.kind: cls} if cls.kind else {})
    return found


def values_of(cls: type[Report]) -> dict[str, Any]:
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    return {f.name: VALUES[f.type.removesuffix(" | None")] for f in fields}


def test_each_kind_has_its_fields_and_arrives_as_it_was_sent() -> None:
    assert set(kinds()) == set(FIELDS)
    for kind, cls in kinds().items():
        whole = cls(**values_of(cls))
        assert decode(encode(whole)) == whole
        names = FIELDS[kind].replace("[", "").replace("]", "").split()
        assert list(encode(whole)) == ["kind", *names]
        before, _, optional = FIELDS[kind].partition("[")
        optional, _, after = optional.partition("]")
        least = cls(**{k: v for k, v in values_of(cls).items() if k not in optional.split()})
        assert decode(encode(least)) == least
        assert list(encode(least)) == ["kind", *before.split(), *after.split()]


@pytest.mark.parametrize(
    "said",
    [
        *(None, 3, "error", [], {}, {"kind": None}, {"kind": ["error"]}, {"kind": "another"}),
        *({"kind": "saved"}, {"kind": "saved", "step": "7"}, {"kind": "saved", "step": True}),
        *({"kind": "saved", "step": 1.5}, {"kind": "snapshot", "step": 1, "key": ["x"]}),
        *({"kind": "error", "type": 3}, {"kind": "fit_end", "logs": ["loss"]}),
    ],
    ids=str,
)
def test_what_a_users_process_invents_is_no_report(said: Any) -> None:
    assert read(said) is None
    assert of({"event": "worker_report", "report": said}) is None


def test_another_version_may_say_more_or_less() -> None:
    assert decode({"kind": "done"}) == reports.Done(collectives=None)
    assert decode({"kind": "saved", "step": 7, "new": 1}) == reports.CheckpointSaved(step=7)
    assert of({"event": "round", "report": {"kind": "done"}}) is None
