"""An option that would change nothing is refused, and none that has its effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfrun.job.errors import UsageError
from tfrun.job.options_without_effect import check, whether_it_stays
from tfrun.job.spec import JobSpec, Program, WorkerRange

PLAIN = JobSpec(
    program=Program(target="train.py"), workers=WorkerRange(low=2, high=2), run_dir="run"
)


def job(changes: dict, *stated: str) -> JobSpec:
    """PLAIN with these changes; "least" and "most" are numbers of workers."""
    changes = {"least": 2, "most": 2, **changes}
    workers = WorkerRange(low=changes.pop("least"), high=changes.pop("most"))
    return replace(PLAIN, workers=workers, stated=stated, **changes)


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        ("rejoin_timeout", {}),
        ("rejoin_timeout", {"most": 1, "least": 1}),
        ("communication", {"least": 1, "most": 1, "communication": "ring"}),
        ("overlap", {"least": 1, "most": 1, "overlap": "on"}),
        ("sync_check", {"least": 1, "most": 1, "sync_check": 3}),
        ("scale_batch", {"least": 1, "most": 1, "scale_batch": True}),
        ("scale_batch", {"ps": 1, "scale_batch": True}),
        ("scale_batch", {"strategy": "script", "scale_batch": True}),
        ("replicas", {"strategy": "script", "replicas": 4}),
        ("balance", {"balance": "auto"}),
        ("balance", {"balance": "auto", "replicas": 2}),
        ("steps_per_execution", {"steps_per_execution": "2", "in_place": "on"}),
        ("steps_per_execution", {"steps_per_execution": "auto", "replicas": 4}),
        ("steps_per_execution", {"steps_per_execution": "auto", "least": 1}),
        ("balance", {"balance": "auto", "replicas": 4, "least": 1, "most": 1}),
        ("compress", {"least": 1, "most": 1, "compress": "bf16"}),
        ("communication", {"ps": 1, "communication": "host"}),
        ("overlap", {"ps": 1, "overlap": "on"}),
        ("sync_check", {"ps": 1, "sync_check": 3}),
        ("steps_per_execution", {"ps": 1, "steps_per_execution": "auto"}),
        ("deterministic", {"ps": 1, "deterministic": True}),
        ("overlap", {"communication": "ring", "overlap": "on"}),
        ("overlap", {"communication": "nccl", "overlap": "on"}),
        ("keep", {"checkpoint_every": "off"}),
        ("checkpoint_dir", {"checkpoint_every": "off"}),
        ("snapshot_every", {"max_restarts": 0, "snapshot_every": "10"}),
        ("launcher_timeout", {}),
        ("spares", {"spares": 1}),
        ("spares", {"spares": 1, "in_place": "auto", "shard_optimizer": True}),
        ("in_place", {"ps": 1, "in_place": "on"}),
        ("in_place", {"least": 1, "most": 1, "in_place": "on"}),
        ("in_place", {"communication": "ring", "in_place": "on"}),
        ("in_place", {"communication": "nccl", "in_place": "on"}),
        ("in_place", {"strategy": "script", "in_place": "on"}),
        ("in_place", {"max_restarts": 0, "replicas": 4, "in_place": "on"}),
        ("in_place", {"balance": "auto", "replicas": 4, "in_place": "on"}),
        ("shard_optimizer", {"ps": 1, "shard_optimizer": True}),
        ("shard_optimizer", {"least": 1, "most": 1, "shard_optimizer": True}),
        ("shard_optimizer", {"communication": "ring", "shard_optimizer": True}),
        ("shard_optimizer", {"communication": "nccl", "shard_optimizer": True}),
        ("shard_optimizer", {"compress": "bf16", "shard_optimizer": True}),
        ("shard_optimizer", {"in_place": "on", "shard_optimizer": True}),
        ("shard_optimizer", {"least": 1, "shard_optimizer": True}),
        ("shard_optimizer", {"replicas": 2, "shard_optimizer": True}),
        ("shard_optimizer", {"snapshot_every": "0", "shard_optimizer": True}),
        ("overlap", {"overlap": "on", "shard_optimizer": True}),
    ],
)
def test_no_effect_is_refused(option: str, changes: dict) -> None:
    with pytest.raises(UsageError, match="TFRUN-107: --" + option.replace("_", "-")) as error:
        check(job(changes, option, "workers"), elsewhere=False)
    assert error.value.exit_code == 2
    check(job(changes, "workers"), elsewhere=False)  # said by a variable, for all jobs of a person


@pytest.mark.parametrize(
    ("changes", "external", "says"),
    [
        ({"max_staleness": 0}, False, "--ps"),
        ({"evaluator": True}, True, "TF_CONFIG"),
        ({"evaluator": True, "checkpoint_every": "off"}, False, "--checkpoint-every off"),
        ({"compress": "bf16", "ps": 1}, False, "not to parameter servers"),
        ({"replicas": 2, "ps": 1}, False, "which servers do with --ps"),
        ({"replicas": 2, "most": 3}, False, "leaves some of 3 workers"),
        ({"replicas": 4, "communication": "ring"}, False, "one replica of each worker"),
        ({"replicas": 2, "least": 1, "communication": "nccl"}, False, "--replicas 2 may ask"),
        ({"compress": "bf16", "communication": "ring"}, False, "does not compress"),
    ],
)
def test_a_contradiction_is_refused_wherever_it_stands(
    changes: dict, external: bool, says: str
) -> None:
    with pytest.raises(UsageError, match=f"TFRUN-107.*{says}"):
        check(job(changes), elsewhere=False, external=external)
    check(job({"ps": 1, "max_staleness": 0, "evaluator": True}), elsewhere=False)


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        ("rejoin_timeout", {"least": 1}),
        ("spares", {"replicas": 4, "in_place": "on", "spares": 2}),
        ("spares", {"spares": 0}),
        ("spares", {"spares": 1, "in_place": "auto"}),
        ("in_place", {"in_place": "on"}),
        ("in_place", {"replicas": 4, "in_place": "on"}),
        ("in_place", {"replicas": 4, "least": 1, "communication": "host", "in_place": "on"}),
        ("shard_optimizer", {"shard_optimizer": True}),
        ("shard_optimizer", {"communication": "host", "shard_optimizer": True}),
        ("shard_optimizer", {"snapshot_every": "0", "max_restarts": 0, "shard_optimizer": True}),
        ("communication", {"communication": "ring"}),
        ("communication", {"least": 1, "most": 1}),  # auto: as if it were not said
        ("overlap", {"overlap": "off", "communication": "ring"}),
        ("overlap", {"overlap": "on", "communication": "host"}),
        ("overlap", {"overlap": "on", "in_place": "on"}),
        ("overlap", {"overlap": "on", "least": 1}),
        ("overlap", {"overlap": "on", "replicas": 4}),
        ("steps_per_execution", {"steps_per_execution": "2", "communication": "ring", "least": 1}),
        ("steps_per_execution", {"steps_per_execution": "script", "in_place": "on"}),
        ("sync_check", {"sync_check": 3}),
        ("scale_batch", {"scale_batch": True}),
        ("scale_batch", {"least": 1, "scale_batch": True}),
        ("sync_check", {"least": 1, "most": 1}),
        ("compress", {"least": 1, "compress": "fp16"}),
        ("replicas", {"replicas": 4}),
        ("replicas", {"least": 1, "most": 1, "replicas": 4}),
        ("replicas", {"replicas": 2, "communication": "ring"}),
        ("balance", {"replicas": 3, "balance": "auto"}),
        ("balance", {"replicas": 2, "least": 1, "balance": "auto"}),
        ("keep", {}),
        ("launcher_timeout", {}),
        ("snapshot_every", {"max_restarts": 0, "snapshot_every": "0"}),
    ],
)
def test_what_has_its_effect_is_taken(option: str, changes: dict) -> None:
    check(job(changes, option), elsewhere=True)


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({}, "auto"),
        ({"least": 1}, "auto"),
        ({"replicas": 4}, "auto"),
        ({"in_place": "on"}, "on"),
        ({"in_place": "off"}, "off"),
        ({"least": 1, "most": 1}, "off"),
        ({"ps": 1}, "off"),
        ({"strategy": "script"}, "off"),
        ({"communication": "ring"}, "off"),
        ({"max_restarts": 0}, "off"),
        ({"balance": "auto", "replicas": 4}, "off"),
        ({"overlap": "on"}, "auto"),
        ({"steps_per_execution": "auto"}, "off"),
        ({"shard_optimizer": True}, "off"),
        ({"compress": "bf16"}, "off"),
    ],
)
def test_workers_stay_where_that_costs_nothing(changes: dict, stays: str) -> None:
    asked = job({"in_place": "auto", **changes})
    assert whether_it_stays(asked) == stays
    if asked.in_place == "auto":
        check(job({"in_place": "auto", **changes}, "overlap"), elsewhere=True)
        assert (
            whether_it_stays(asked, fixed=True) == whether_it_stays(asked, external=True) == "off"
        )


def test_somebody_elses_cluster_restarts_nothing() -> None:
    for option, value in (("max_restarts", 2), ("snapshot_every", "5")):
        stated = job({option: value}, option)
        check(stated, elsewhere=False)
        with pytest.raises(UsageError, match=r"TFRUN-107.*a TF_CONFIG states this cluster"):
            check(stated, elsewhere=False, external=True)
        nothing = job({option: type(value)("0")}, option)
        check(nothing, elsewhere=False, external=True)


def test_nobody_stays_where_a_cluster_file_states_all_addresses() -> None:
    stays = {"replicas": 4, "in_place": "on", "spares": 1}
    for option in ("in_place", "spares"):
        stated = job(stays, option)
        check(stated, elsewhere=True)
        name = option.replace("_", "-")
        with pytest.raises(UsageError, match=f"TFRUN-107: --{name} has no.*--cluster states"):
            check(stated, elsewhere=True, fixed=True)
    check(job(stays), elsewhere=True, fixed=True)  # said by variables


def test_spares_are_refused_where_a_variable_asks_for_workers_that_cannot_stay() -> None:
    for changes in ({"ps": 1}, {"communication": "ring", "replicas": 2}, {"max_restarts": 0}):
        with pytest.raises(UsageError, match="TFRUN-107: --spares has no effect"):
            check(job({"in_place": "on", "spares": 1, **changes}, "spares"), elsewhere=False)
