"""Rounds whose state is on servers: what is replaced, what ends the round, what is done again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from control_rounds import (
    JOIN_A,
    READY_A,
    RUNNING,
    SERVED,
    applied,
    done,
    exited,
    kill,
    left,
    lost,
    raised,
    walk,
)

from tfrun.cluster.cluster_file import parse_cluster_file
from tfrun.control.agent_orders import start_tasks
from tfrun.control.membership import StandingBy, growth, new_round
from tfrun.control.placement import Site, fixed_plan, make_plan
from tfrun.control.preempted_machines import goes_on_without
from tfrun.control.protocol.messages import Release, StopRound
from tfrun.control.recovery import Recovery
from tfrun.control.rounds.after_failure import STEADY_SECONDS
from tfrun.control.rounds.model import GoOnWithout, PlannedTask, ReplaceTask, Round, SetTimer, State
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure
from tfrun.job.reports import Applied, Resumed
from tfrun.job.restart_policy import Restarts
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.job.world import world_from_environment

SITES = [Site(agent="a", host="a", slots=1), Site(agent="b", host="b", slots=2)]


def served(**changes: Any) -> Round:
    return Round(number=0, tasks=SERVED, **{"recovers": True, "replacements": 2, **changes})


def spec(workers: str = "2", **changes: Any) -> JobSpec:
    wanted = WorkerRange.parse(workers)
    return JobSpec(program=Program(target="t.py"), run_dir="/run", workers=wanted, ps=1, **changes)


@pytest.mark.parametrize("code", [0, 1, -9, -11])
def test_a_worker_is_started_again_and_nothing_else_stops(code: int) -> None:
    round, actions = walk(*RUNNING, exited("worker:0", code), round=served())
    (action,) = actions
    assert isinstance(action, ReplaceTask) and action.task == "worker:0"
    assert action.failure.status == ExitStatus(code=code)
    assert (round.state, round.exits, round.failures) == (State.RUNNING, {}, ())
    assert round.remaining == {"chief:0", "worker:0", "ps:0"}


def test_one_that_ends_again_and_again_ends_the_round() -> None:
    ends = [exited("worker:0", -9, time=float(time)) for time in range(3)]
    round, actions = walk(*RUNNING, *ends, round=served())
    assert round.state is State.LEAVING and isinstance(actions[0], StopRound)
    assert [failure.task for failure in round.failures] == ["worker:0"]
    round, _ = walk(*RUNNING, *ends, round=served(recovers=False))
    assert round.state is State.STOPPING
    round, _ = walk(*RUNNING, ends[0], round=served(replacements=0))
    assert round.state is State.LEAVING


def test_steps_that_are_applied_meanwhile_begin_a_new_count() -> None:
    twice = [exited("worker:0", -9), exited("worker:0", -9)]
    same = [*twice, applied(5), *twice, applied(5), exited("worker:0", -9)]
    assert walk(*RUNNING, *same, round=served())[0].state is State.LEAVING
    further = [*twice, applied(5), *twice, applied(6), exited("worker:0", -9)]
    round, _ = walk(*RUNNING, *further, round=served())
    assert (round.state, round.applied) == (State.RUNNING, 6)


def test_one_that_has_served_for_long_begins_a_new_count() -> None:
    ends = [exited("worker:0", -9, time=STEADY_SECONDS * time) for time in range(9)]
    assert walk(*RUNNING, *ends, round=served())[0].state is State.RUNNING


@pytest.mark.parametrize(
    "event", [exited("ps:0", -9), exited("chief:0", -9), lost("b", spare=True)]
)
def test_the_end_of_what_holds_the_state_ends_the_round_at_once(event: Any) -> None:
    round, actions = walk(*RUNNING, event, round=served())
    timer = SetTimer(state=State.LEAVING, seconds=round.timeouts.leave_grace)
    assert round.state is State.LEAVING
    assert actions == (kill(), timer)
    for task in round.remaining:
        round, _ = walk(exited(task, -9, requested=True), round=round)
    assert (round.state, round.recoverable) == (State.ENDED, True)


@pytest.mark.parametrize("kind", ["UnavailableError", "PSUnavailableError", "ClosureAbortedError"])
def test_the_chief_that_loses_a_server_has_not_failed_itself(kind: str) -> None:
    round, _ = walk(*RUNNING, raised("chief:0", kind), round=served())
    assert round.state is State.LEAVING
    assert walk(*RUNNING, raised("chief:0"), round=served())[0].state is State.STOPPING


def test_a_worker_that_ends_while_the_round_ends_is_not_replaced() -> None:
    round, actions = walk(*RUNNING, done("chief:0"), exited("worker:0", -9), round=served())
    assert round.state is State.RELEASING
    assert not any(isinstance(action, ReplaceTask) for action in actions)


def test_what_the_chief_has_applied_is_heard() -> None:
    round, _ = walk(*RUNNING, applied(7), applied(8, "worker:0"), round=served())
    assert round.applied == 7


def test_a_plan_says_what_can_be_replaced() -> None:
    plan = make_plan(spec(), SITES)
    assert {task.name: (task.runs, task.replaceable) for task in plan.planned} == {
        "chief:0": ("script", False),
        "worker:0": ("server", True),
        "worker:1": ("server", True),
        "ps:0": ("server", False),
    }
    assert new_round(spec(max_restarts=5), plan, 0).replacements == 5


def test_a_person_is_told_how_many_steps_are_done_again() -> None:
    killed = Failure(task="ps:1", time=1.0, status=ExitStatus(code=-9))
    state = Recovery(restarts=Restarts(limit=3)).noticed(1.0)
    assert not state.catches_up
    state = state.reported(Applied(key=[0, 0, 120], step=120))
    after = state.after(Round(number=0, tasks=(), failures=(killed,)))
    assert after is not None and after.catches_up and after.snapshot is None
    resumed = after.reported(Resumed(key=[0, 0, 100], step=100))
    assert resumed.sentence(4, 1.5) == (
        "ps 1 killed by SIGKILL at step 120; resumed at step 100 with 4 workers, "
        "and does 20 steps again, after 1.5 s"
    )
    assert resumed.record(1.5)["lost_steps"] == 20
    assert "restarted from the beginning with 4 workers" in after.sentence(4, 1.5)


def test_nobody_leaves_and_nobody_comes_between_two_steps() -> None:
    elastic = spec("1:2")
    plan = make_plan(elastic, SITES, workers=1)
    assert not goes_on_without(elastic, plan, {"a", "b"}, {"b"})
    others = {"b": StandingBy(here=99.0, ready=99.0)}
    assert growth(elastic, plan, others, stepped=99.0) is None
    assert growth(replace(elastic, ps=0), make_plan(replace(elastic, ps=0), SITES, workers=1),
                  others, stepped=99.0)  # fmt: skip


def test_a_server_is_not_started_on_a_machine_that_is_not_there() -> None:
    plan = make_plan(replace(spec("1:3"), ps=3), SITES, workers=1, there={"a"})
    assert {task.agent for task in plan.planned} == {"a"}
    plan = make_plan(replace(spec("1:3"), ps=3), SITES)
    assert [task.agent for task in plan.planned if task.name.startswith("ps")] == ["a", "b", "a"]


ASIDE = (
    PlannedTask(name="worker:0", agent="a"),
    PlannedTask(name="evaluator:0", agent="a", replaceable=True, is_aside=True),
)


def aside(*events: Any) -> tuple[Round, Any]:
    round = Round(number=0, tasks=ASIDE, recovers=True, replacements=2)
    return walk(JOIN_A, READY_A, *events, round=round)


def test_a_job_goes_on_without_its_evaluator() -> None:
    round, actions = aside(raised("evaluator:0"), exited("evaluator:0", 1))
    assert (round.state, round.failures) == (State.RUNNING, ())
    assert isinstance(actions[0], GoOnWithout) and actions[0].failure.task == "evaluator:0"
    round, actions = aside(exited("evaluator:0", -9), exited("evaluator:0", -9))
    assert isinstance(actions[0], ReplaceTask)
    round, actions = aside(*[exited("evaluator:0", -9)] * 3)
    assert round.state is State.RUNNING and isinstance(actions[0], GoOnWithout)
    round, actions = walk(exited("worker:0", 0), round=round)
    assert (round.state, round.root_cause) == (State.ENDED, None)


@pytest.mark.parametrize("said", [raised("evaluator:0"), left("evaluator:0")])
def test_an_evaluator_does_not_decide_how_a_round_ends(said: Any) -> None:
    round, _ = aside(exited("worker:0", -9), said, exited("evaluator:0", 1))
    assert (round.state, round.recoverable) == (State.ENDED, True)
    assert [failure.task for failure in round.failures] == ["worker:0"]


def test_a_job_waits_for_its_evaluator() -> None:
    round, actions = aside(done("worker:0"))
    timer = SetTimer(state=State.RELEASING, seconds=round.timeouts.pause_timeout)
    assert actions == (Release(round=0), timer)
    round, _ = walk(exited("worker:0", 0), round=round)
    assert round.state is State.RELEASING
    assert walk(exited("evaluator:0", 0), round=round)[0].state is State.ENDED
    round, actions = aside(exited("evaluator:0", 0))
    assert (round.state, round.done, actions) == (State.RUNNING, frozenset(), ())


@pytest.mark.parametrize("fixed", [False, True])
def test_an_evaluator_stands_outside_the_cluster(fixed: bool) -> None:
    stated = replace(spec(), evaluator=True)
    sites = [Site(agent="a", host="a", slots=2)]
    plan, ports = make_plan(stated, sites), {"a": (1, 2, 3, 4)}
    if fixed:
        one = {"worker": ["a:7", "a:8"], "ps": ["a:9"], "chief": ["a:6"]}
        cluster = parse_cluster_file(json.dumps(one), where="c.json")
        plan, ports = fixed_plan(cluster, sites, evaluator=True), {"a": ()}
    assert plan.ports_of("a") == len(ports["a"]) and plan.workers == 2
    *_, last = plan.planned
    assert (last.name, last.runs, last.is_aside) == ("evaluator:0", "script", True)
    *others, told = start_tasks(plan, stated, 0, ports, None)["a"]
    assert json.loads(told.environment["TF_CONFIG"]) == {
        "cluster": {}, "task": {"type": "evaluator", "index": 0}
    }  # fmt: skip
    here = world_from_environment(told.environment)
    assert (here.role, here.is_chief, here.size, here.in_job) == ("evaluator", False, 1, True)
    assert all("evaluator" not in other.environment["TF_CONFIG"] for other in others)
    assert [other.environment["WORLD_SIZE"] for other in others] == ["3"] * 4
