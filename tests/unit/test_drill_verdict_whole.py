"""Verdicts of faults that hit a whole job."""

from __future__ import annotations

from typing import Any

import pytest

from tfrun.tools.drill.verdict import EndedRun, Row, Samples, judge_full_disk, judge_preempted

WANTED = {0: frozenset({"a"})}
WHOLE = Samples(lost=0, repeated=0)


def report(time: float, kind: str, **fields: Any) -> dict[str, Any]:
    told = {"kind": kind, **fields}
    return {"time": time, "event": "worker_report", "task": "worker:0", "report": told}


def run(*events: dict[str, Any], code: int = 0, samples: Samples | None = WHOLE) -> EndedRun:
    return EndedRun(
        run_dir="r", events=events, code=code, timed_out=False, seconds=9.0, samples=samples
    )


FIRST = [report(2, "first_step", step=1), report(5.5, "job_saved", step=40)]
AGAIN = [
    report(12, "resumed", step=40),
    report(12.5, "first_step", step=41),
    report(15, "weights", call=0, digest="a"),
]


def preempted(first: list, again: list, *, code: int = 75, **options: Any) -> Row:
    runs = run(*first, code=code), run(*first, *again, **options)
    return judge_preempted(*runs, 5.0, 10.0, WANTED)


def test_a_job_that_saves_and_goes_on() -> None:
    row = preempted(FIRST, AGAIN)
    assert row.ok and row.hit == 1 and row.weights_equal
    assert (row.noticed, row.first_step, row.steps_lost) == (0.5, 2.5, 0)
    assert (row.samples_lost, row.samples_repeated) == (0, 0)


@pytest.mark.parametrize(
    ("first", "again", "options", "says"),
    [
        (FIRST, AGAIN, {"code": 143}, "the job ended with 143, not 75"),
        (FIRST[:1], AGAIN, {}, "nothing was saved"),
        (FIRST, [report(12, "resumed", step=33), *AGAIN[1:]], {}, "7 steps lost"),
        (FIRST, AGAIN[1:], {}, "40 steps lost"),
        (FIRST, [*AGAIN[:2], report(15, "weights", call=0, digest="b")], {}, "other weights"),
        (FIRST, AGAIN, {"samples": Samples(lost=0, repeated=16)}, "16 samples repeated"),
        (FIRST, AGAIN, {"samples": Samples(lost=2, repeated=0)}, "2 samples lost"),
    ],
)
def test_a_promise_that_is_broken(
    first: list, again: list, options: dict[str, Any], says: str
) -> None:
    row = preempted(first, again, **options)
    assert not row.ok and says in row.broken


def test_a_job_that_fails_when_it_is_started_again() -> None:
    runs = run(*FIRST, code=75), run(*FIRST, code=1)
    assert judge_preempted(*runs, 5.0, 10.0, WANTED).broken[0] == "the job ended with 1"


def test_a_job_that_was_over_before() -> None:
    for told in (None, 5.0):
        row = judge_preempted(run(*FIRST), None, told, 0.0, WANTED)
        assert row.hit == 0 and not row.broken and not row.ok


def test_a_full_disk() -> None:
    good = run(AGAIN[-1])
    row = judge_full_disk(good, 5.0, 5.2, WANTED)
    assert row.ok and row.noticed == 0.2 and row.weights_equal
    assert judge_full_disk(good, 5.0, None, WANTED).broken == ("no warning",)
    assert judge_full_disk(run(code=1), 5.0, 5.2, WANTED).broken == ("the job ended with 1",)
    other = run(report(15, "weights", call=0, digest="b"))
    assert judge_full_disk(other, 5.0, 5.2, WANTED).broken == ("other weights",)
    assert judge_full_disk(good, None, None, WANTED).hit == 0
