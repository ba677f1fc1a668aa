"""From a failed round to the next one: what is remembered, where it runs, what is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfrun.control.membership import next_plan, recovers
from tfrun.control.placement import Site, make_plan
from tfrun.control.recovery import Recovery, how_it_failed
from tfrun.control.rounds.model import Round
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure
from tfrun.job.reports import (
    EpochEnd,
    Error,
    FirstStep,
    Report,
    Resumed,
    SnapshotTaken,
    Stayed,
    StepsMade,
)
from tfrun.job.restart_policy import Restarts
from tfrun.job.spec import JobSpec, Program, WorkerRange

NEW = Recovery(restarts=Restarts(limit=1))


def spec(workers: str = "4", **changes) -> JobSpec:
    wanted = WorkerRange.parse(workers)
    return JobSpec(program=Program(target="t.py"), run_dir="/run", workers=wanted, **changes)


SITES = [Site(agent=name, host=name, slots=slots) for name, slots in (("a", 2), ("b", 1), ("c", 1))]


def killed(task: str, time: float = 1.0, code: int = -9) -> Failure:
    return Failure(task=task, time=time, status=ExitStatus(code=code))


def failed(*failures: Failure) -> Round:
    return Round(number=0, tasks=(), failures=failures)


def snapshot(step: int, call: int = 0) -> SnapshotTaken:
    return SnapshotTaken(key=[call, 0, step], step=step)


def after(*reports: Report, state: Recovery = NEW) -> Recovery:
    for report in reports:
        state = state.reported(report)
    return state


def test_the_newest_snapshot_counts() -> None:
    state = after(snapshot(7), snapshot(8), snapshot(7))
    assert (state.snapshot, state.reached) == ((0, 8), (0, 8))
    assert after(snapshot(100), snapshot(3, call=1)).snapshot == (1, 3)


def test_a_first_step_belongs_to_the_fit_that_runs() -> None:
    state = after(snapshot(3, call=1), FirstStep(step=4))
    assert (state.reached, state.snapshot) == ((1, 4), (1, 3))


def test_what_a_worker_tells_late_of_the_training_before_is_not_of_this_one() -> None:
    nothing = {"epoch": 0, "in_epoch": 0, "steps": 1, "seconds": 0.1, "split": [], "rss": 1}
    state = after(FirstStep(key=[0, 0, 1], step=1), FirstStep(key=[1, 0, 1], step=1))
    late, own, unknown = (
        StepsMade(**nothing, cpu=0.1, step=15, call=call) for call in (0, 1, None)
    )
    assert after(late, state=state).seen == (1, 1)
    assert after(own, state=state).seen == after(unknown, state=state).seen == (1, 15)


def test_other_reports_tell_nothing() -> None:
    assert NEW.reported(EpochEnd(epoch=7, steps=7)) == NEW


def test_a_resumed_job_says_from_where_to_where() -> None:
    state = after(snapshot(1203)).noticed(10.0).after(failed(killed("worker:2")))
    assert state is not None
    state = after(Resumed(key=[0, 0, 1203], step=1203), state=state)
    state = after(FirstStep(step=1204), state=state)
    assert state.sentence(4, 1.14) == (
        "worker 2 killed by SIGKILL at step 1,203; resumed at step 1,203 with 4 workers after 1.1 s"
    )
    assert state.lost_steps == 0


def test_steps_that_nobody_could_save_are_lost() -> None:
    state = after(snapshot(100), FirstStep(step=120))
    state = state.after(failed(killed("worker:0")))
    assert state is not None
    assert after(Resumed(step=100), state=state).lost_steps == 20


def test_without_a_snapshot_it_begins_again() -> None:
    state = NEW.noticed(1.0).after(failed(killed("worker:0")))
    assert state is not None
    assert state.sentence(1, 0.25) == (
        "worker 0 killed by SIGKILL; restarted from the beginning with 1 worker after 0.2 s"
    )


def test_a_failure_before_the_first_step_joins_the_one_before() -> None:
    state = replace(NEW, restarts=Restarts(limit=9))
    state = after(snapshot(5), state=state).noticed(1.0).after(failed(killed("worker:0")))
    assert state is not None
    state = state.noticed(2.0).after(failed(killed("worker:1", code=-11)))
    assert state is not None and state.since == 1.0
    state = after(Resumed(step=5), state=state)
    assert state.sentence(2, 3.0).startswith(
        "worker 0 killed by SIGKILL, then worker 1 killed by SIGSEGV at step 5; resumed"
    )
    assert state.mended.noticed(7.0).since == 7.0
    assert state.told.noticed(7.0).since == 7.0


def test_the_last_restart() -> None:
    state = NEW.after(failed(killed("worker:0")))
    assert state is not None
    assert state.after(failed(killed("worker:0"))) is None
    assert after(snapshot(1), state=state).after(failed(killed("worker:0"))) is not None


def test_how_it_failed() -> None:
    peer = Failure(task="worker:0", time=0.5, error=Error(type="UnavailableError"))
    silent = Failure(task="worker:1", time=0.5, tail="worker 1 stopped answering", silent=True)
    assert how_it_failed(failed(peer, killed("worker:1"))) == "worker 1 killed by SIGKILL"
    assert how_it_failed(failed(peer, silent)) == "worker 1 stopped answering"
    assert how_it_failed(failed(peer)) == "worker 0 lost sight of the others"
    many = [killed(f"worker:{number}", time=9.0 - number) for number in range(5)]
    assert how_it_failed(failed(*many)) == (
        "worker 4 killed by SIGKILL and worker 3 killed by SIGKILL "
        "and worker 2 killed by SIGKILL and 2 more"
    )


def test_which_jobs_recover() -> None:
    assert recovers(spec(), make_plan(spec(), SITES))
    assert not recovers(spec(max_restarts=0), make_plan(spec(), SITES))
    assert recovers(spec(ps=1), make_plan(spec(ps=1), SITES))
    assert not recovers(spec(), make_plan(spec(), SITES, external="{}"))


def test_the_same_machines_take_the_same_tasks() -> None:
    plan = make_plan(spec(), SITES)
    assert next_plan(spec(), plan, {"a", "b", "c", "other"}) is plan


@pytest.mark.parametrize(
    ("workers", "there", "count"),
    [("4", "ab", None), ("3:4", "ab", 3), ("1:4", "bc", 2), ("1:4", "c", 1), ("1:4", "", None)],
)
def test_fewer_machines(workers: str, there: str, count: int | None) -> None:
    stated = spec(workers)
    plan = next_plan(stated, make_plan(stated, SITES), set(there))
    assert (plan and len(plan.tasks)) == count
    if plan:
        assert {task.agent for task in plan.planned} <= set(there)
        assert list(plan.tasks) == [f"worker:{index}" for index in range(count or 0)]


def test_growth_is_no_failure() -> None:
    state = after(snapshot(1203)).noticed(1.0).after_regroup({"b"})
    assert (state.restarts, state.grown) == (NEW.restarts, True)
    state = after(Resumed(key=[0, 0, 1203], step=1203), state=state)
    state = after(FirstStep(step=1204), state=state)
    assert state.sentence(4, 1.3) == "b joined; resumed at step 1,203 with 4 workers after 1.3 s"
    assert state.record(1.3) == {"step": 1203, "lost_steps": 0, "seconds": 1.3, "restarts": 0}
    assert not state.mended.grown
    many = state.told.after_regroup({"a", "b", "c", "d"})
    assert many.how == ("4 hosts joined",)
    assert NEW.after_regroup({"d", "c"}).how == ("c and d joined",)
    assert NEW.after_regroup(set()).how == ("a host came and went",)


def test_a_failure_while_it_grows_is_one() -> None:
    state = after(snapshot(5)).noticed(1.0).after_regroup({"b"})
    state = state.noticed(2.0).after(failed(killed("worker:1")))
    assert state is not None and not state.grown and state.since == 1.0
    state = after(Resumed(step=5), state=state)
    assert state.sentence(2, 3.0).startswith(
        "b joined, then worker 1 killed by SIGKILL at step 5; resumed"
    )


def test_a_job_that_goes_on_in_place_says_so() -> None:
    state = after(FirstStep(key=[1, 0, 3], step=3)).noticed(10.0)
    state = after(Stayed(key=[1, 0, 9], step=9), Stayed(key=[1, 0, 8], step=8), state=state)
    failed_once = state.after(failed(killed("worker:1")))
    assert failed_once is not None and not failed_once.in_place
    state = failed_once.goes_on_in_place
    assert (state.resumed, state.began, state.call, state.stayed) == ((1, 9), (1, 9), 1, None)
    assert state.lost_steps == 0
    assert state.sentence(3, 0.04) == (
        "worker 1 killed by SIGKILL at step 9; "
        "resumed in place at step 9 with 3 workers after 0.04 s"
    )
    state = after(FirstStep(key=[1, 0, 10], step=10), state=state)
    assert state.in_place and state.resumed == (1, 9)
    # A step is progress: the only restart that is allowed is there again.
    again = after(Stayed(key=[1, 0, 10], step=10), state=state.mended)
    again = again.after(failed(killed("worker:0")))
    assert again is not None and again.restarts.total == 2
    assert again.goes_on_in_place.after(failed(killed("worker:0"))) is None


def test_a_successor_that_takes_its_place_is_no_failure() -> None:
    state = after(Stayed(key=[0, 0, 9], step=9)).noticed(1.0).after_regroup(set(), taken=1)
    state = state.goes_on_in_place
    assert state.kind == "grown"
    assert state.sentence(2, 0.2) == (
        "a successor took its place; resumed in place at step 9 with 2 workers after 0.20 s"
    )
    assert NEW.after_regroup({"b"}, taken=1).how == ("b joined",)
    assert NEW.after_regroup(set(), taken=2).how == ("2 successors took their places",)
    assert NEW.after_regroup({"b"}, why="no successor came").how == ("no successor came",)
