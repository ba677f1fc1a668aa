"""Who is in a round of processes that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tfrun.cluster.address import parse_address
from tfrun.cluster.cluster_spec import ClusterSpec
from tfrun.control.agent_orders import start_tasks, successor_task
from tfrun.control.in_place import InPlace, Waiting, next_round, stayers
from tfrun.control.placement import Site, make_plan
from tfrun.control.rounds.model import Round
from tfrun.control.successors import Successor
from tfrun.job.exits import ExitStatus
from tfrun.job.spec import JobSpec, Program, WorkerRange


def spec(workers: str = "4", **changes) -> JobSpec:
    wanted = WorkerRange.parse(workers)
    return JobSpec(program=Program(target="t.py"), run_dir="/run", workers=wanted, **changes)


SITES = [Site(agent=name, host=f"h{name}", slots=slots) for name, slots in (("a", 2), ("b", 2))]
HERE = {"leaving": (), "there": ("a", "b"), "more": True}
ON = {"worker:0": "a", "worker:1": "a", "worker:2": "b", "worker:3": "b"}


def stay(*ranks: int) -> list[Waiting]:
    names = [f"worker:{rank}" for rank in ranks]
    return [
        Waiting(name=n, agent=ON[n], port=7000 + r, stayed=True)
        for n, r in zip(names, ranks, strict=True)
    ]


def new(agent: str, number: int = 0) -> Waiting:
    return Waiting(name=f"successor:{number}", agent=agent, port=8000 + number)


def chosen(
    stays: list[Waiting], ready: Sequence[Waiting] = (), workers: str = "4", **given
) -> InPlace | None:
    job, plan = spec(workers), make_plan(spec(workers), SITES)
    return next_round(job, plan, stays, ready, **{**HERE, **given})


def who(found: InPlace | None) -> list[str]:
    assert found is not None
    assert list(found.plan.tasks) == list(found.takes)
    return list(found.takes.values())


@pytest.mark.parametrize("gone", range(4))
def test_the_others_keep_their_order(gone: int) -> None:
    left = [rank for rank in range(4) if rank != gone]
    found = chosen(stay(*left))
    assert who(found) == [f"worker:{rank}" for rank in left]
    assert found is not None and found.plan.workers == 3
    assert sum(len(ports) for ports in found.ports.values()) == 3


def test_a_successor_is_a_neighbour_of_its_machines_workers() -> None:
    found = chosen(stay(1, 2, 3), [new("a")])
    assert who(found) == ["worker:1", "successor:0", "worker:2", "worker:3"]
    assert found is not None
    ranks = [(t.rank, t.host_index, t.local_rank, t.local_size) for t in found.plan.tasks.values()]
    assert ranks == [(0, 0, 0, 2), (1, 0, 1, 2), (2, 1, 0, 2), (3, 1, 1, 2)]
    assert found.ports == {"a": (7001, 8000), "b": (7002, 7003)}


def test_those_on_machines_with_room_come_first() -> None:
    found = chosen(stay(0, 1, 2), [new("a", 0), new("b", 1)])
    assert who(found) == ["worker:0", "worker:1", "worker:2", "successor:1"]
    # Another one is about to come to the machine that has room.
    assert who(chosen(stay(0, 1, 2), [new("a", 0)])) == ["worker:0", "worker:1", "worker:2"]
    found = chosen(stay(0, 1), [new("a", 0), new("a", 1)], there={"a"})  # better than none
    assert who(found) == ["worker:0", "worker:1", "successor:0", "successor:1"]
    found = chosen(stay(0, 1), [new("a", 0), new("a", 1)], "2:4", there={"a"})
    assert who(found) == ["worker:0", "worker:1"]  # the job does not need them


def test_no_more_than_the_job_may_have() -> None:
    assert len(who(chosen(stay(0, 1, 2), [new("b", n) for n in range(3)]))) == 4
    assert len(who(chosen(stay(0, 1, 2, 3), [new("b")]))) == 4


@pytest.mark.parametrize(("workers", "more", "goes"), [("4", True, True), ("4", False, False)])
def test_fewer_than_it_needs_only_where_others_come(workers: str, more: bool, goes: bool) -> None:
    assert (chosen(stay(0, 1), [], workers, more=more) is not None) == goes
    assert chosen(stay(0, 1), [], "2:4", more=more) is not None
    assert len(who(chosen(stay(0, 1), [new("b", 0), new("b", 1)], workers, more=more))) == 4


def test_without_one_that_has_the_state_there_is_none() -> None:
    assert chosen([], [new("a"), new("b", 1)]) is None


def test_a_machine_that_is_preempted_has_no_place_unless_it_alone_has_the_state() -> None:
    found = chosen(stay(0, 2), [new("b"), new("a", 1)], "1:4", leaving={"b"})
    assert who(found) == ["worker:0", "successor:1"]
    assert who(chosen(stay(2, 3), [new("a")], "1:4", leaving={"b"})) == [
        *("worker:2", "worker:3", "successor:0")
    ]


def test_who_cannot_be_given_another_place() -> None:
    plan = make_plan(spec(), SITES)
    plan_ps = make_plan(spec(ps=1), SITES)
    assert next_round(spec(ps=1), plan_ps, stay(0), [], **HERE) is None
    cluster = ClusterSpec.of({"worker": [parse_address(f"h{n}:1", where="") for n in "ab"]})
    assert next_round(spec(), replace(plan, fixed=cluster), stay(0), [], **HERE) is None
    assert next_round(spec(), replace(plan, external="{}"), stay(0), [], **HERE) is None


def test_the_evaluator_starts_anew() -> None:
    job = spec(evaluator=True)
    found = next_round(job, make_plan(job, SITES), stay(0, 2), [], **HERE)
    assert found is not None
    assert list(found.plan.tasks) == ["worker:0", "worker:1", "evaluator:0"]
    assert "evaluator:0" not in found.takes
    tasks = start_tasks(found.plan, job, 3, found.ports, None)
    (worker, evaluator), (other,) = tasks["a"], tasks["b"]
    assert [t.environment["WORLD_SIZE"] for t in (worker, other, evaluator)] == ["2", "2", "1"]
    assert '"ha:7000", "hb:7002"' in worker.environment["TF_CONFIG"].replace("'", '"')


def test_stayers_are_those_that_wait() -> None:
    plan = make_plan(spec(), SITES)
    round = Round(
        number=1,
        tasks=plan.planned,
        stayed={f"worker:{rank}": 7000 + rank for rank in (0, 1, 3)},
        exits={"worker:1": ExitStatus(code=-9)},
        lost=frozenset({"c"}),
    )
    assert stayers(round) == stay(0, 3)
    assert stayers(replace(round, lost=frozenset({"b"}))) == stay(0)


@pytest.mark.parametrize(
    ("task", "size"), [("worker:1", "2"), ("worker:2", "3"), ("worker:3", "4")]
)
def test_a_successors_environment_is_that_of_its_task(task: str, size: str) -> None:
    found = chosen(stay(0, 2))
    assert found is not None
    round = Round(number=3, tasks=found.plan.planned, ports=found.ports)
    one = Successor(name="successor:0", agent="a", task=task, call=2, began=0.0)
    started = successor_task(found.plan, round, one, 4, traces=["one"], overlaps=True)
    assert started.settings == {
        "default_replicas": 4,
        "rehearses": True,
        "rehearses_call": 2,
        "rehearses_traces": ["one"],
        "rehearses_overlap": True,
    }
    own = started.environment
    assert (own["WORLD_SIZE"], own["TFRUN_ROUND"]) == (size, "3")
    assert own["RANK"] == task.removeprefix("worker:") and not started.show
