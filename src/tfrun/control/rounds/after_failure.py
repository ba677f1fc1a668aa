"""What follows a failure in a round: it is recorded, and the next round may mend it.

For that the other workers are told to leave, and keep their state. Also where no worker has
failed, and machines come or go. One that another process can replace is started again instead.
"""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.protocol import messages
from tfrun.control.protocol.messages import WorkerExited
from tfrun.control.rounds.model import (
    AgentLost,
    ChangeMachines,
    GiveUpAgents,
    GoOnWithout,
    ReplaceTask,
    Reported,
    Result,
    Round,
    SetTimer,
    State,
    TimedOut,
)
from tfrun.control.rounds.preempted_job import chief_not_resumed
from tfrun.control.rounds.stopping import end_when_over, kill, stop
from tfrun.job import reports, unmatched_call
from tfrun.job.errors import CODES
from tfrun.job.exits import EXIT_STRICT, ExitStatus
from tfrun.job.first_failure import Failure
from tfrun.job.restart_policy import Cause, cause_of

STEADY_SECONDS = 10.0  # who has served for so long may end once more, whatever the others do


def with_exit(round: Round, event: WorkerExited) -> Round:
    """Records the exit of a task, however it ended."""
    return replace(round, exits={**round.exits, event.task: event.status})


def with_exit_failure(round: Round, event: WorkerExited) -> Round:
    """Records the exit, joined with the exception that the same task reported before."""
    code = "TFRUN-403" if event.status.out_of_memory else "TFRUN-401"
    for index, failure in enumerate(round.failures):
        if failure.task == event.task:
            # Killed by us after its report: the exit code that an exception leads to is 1.
            status = event.status if event.status.code > 0 else ExitStatus(code=1)
            if failure.strict:  # whatever the script makes of SIGTERM
                status = ExitStatus(code=EXIT_STRICT)
            code = _code_of(failure.error) or code
            joined = replace(failure, status=status, tail=event.tail, code=code)
            failures = (*round.failures[:index], joined, *round.failures[index + 1 :])
            return replace(round, failures=failures)
    failure = Failure(
        task=event.task, time=event.time, status=event.status, tail=event.tail, code=code
    )
    return replace(round, failures=(*round.failures, failure))


def _code_of(error: reports.Error | None) -> str:
    """The code of an error of ours; the report comes from the user's process."""
    code = error.code if error else None
    return code if code in CODES else ""


def with_late_exit(round: Round, event: WorkerExited) -> Round:
    """Records the exit of a task whose round is ending, as a failure only where that is news."""
    round = with_exit(round, event)
    # Ends by our own signals are no news; an own exit code, or a signal we did not send, is.
    own_end = event.status.code != 0 and not event.requested and not round.interrupted
    reported = any(f.task == event.task and f.error and not f.status for f in round.failures)
    if own_end or reported or event.status.out_of_memory:
        return with_exit_failure(round, event)
    return round


def with_error(round: Round, event: Reported[reports.Error]) -> Round:
    """Records an exception; who tells of one at last has not been silent."""
    code = _code_of(event.report) or "TFRUN-401"
    failure = Failure(
        task=event.task, time=event.time, error=event.report, code=code, strict=event.strict
    )
    others = [f for f in round.failures if not (f.silent and f.task == event.task)]
    return replace(round, failures=(*others, failure))


def without_agent(round: Round, event: AgentLost) -> Round:
    """Records that a machine is gone, with all its tasks."""
    there = {task.name for task in round.tasks if task.agent == event.agent}
    # That its workers do not answer any more is no news of its own.
    others = [f for f in round.failures if not (f.silent and f.task in there)]
    return replace(
        round,
        lost=round.lost | {event.agent},
        failures=(*others, event.failure),
        recovers=round.recovers and event.spare,
    )


def with_silent(round: Round) -> Round:
    """Names the cause where all have only lost sight of another: those that say nothing."""
    if any(not failure.follows_from_a_peer for failure in round.failures):
        return round
    since = min((failure.time for failure in round.failures), default=0.0)
    silent = sorted(round.awaited - round.followers - round.done)
    failures = (
        Failure(
            task=task,
            time=since,
            tail=f"{task.replace(':', ' ')} stopped answering and was killed",
            silent=True,
        )
        for task in silent
    )
    return replace(round, failures=(*round.failures, *failures))


def _with_hard_end(round: Round) -> Round:
    """Names the cause where workers have lost one that has ended itself, by `os._exit(0)`.

    A script that comes to its end in another way waits until all have.
    """
    if round.has_servers or any(not failure.follows_from_a_peer for failure in round.failures):
        return round
    gone = [task for task, status in round.exits.items() if status.code == 0]
    gone = [task for task in gone if not round.is_aside(task)]
    if not gone or not round.failures:
        return round
    first = min(round.failures, key=lambda failure: failure.time)
    who = first.task.replace(":", " ")
    where = f" in {first.error.where}" if first.error and first.error.where else ""
    failure = Failure(
        task=gone[0],
        time=first.time,
        code=unmatched_call.CODE,
        tail=f"{who} waited{where}: {unmatched_call.ended(gone)} "
        "(os._exit(0) ends a process at once)",
    )
    return replace(round, failures=(*round.failures, failure))


def mendable(round: Round) -> bool:
    """True when another round may have none of this one's failures."""
    return round.recovers and _is_infrastructure(round)


def worth_leaving(round: Round) -> bool:
    """True when the workers' state is wanted.

    By the next round, by the chief that saves it, or by a machine that saves it before the job
    ends. What is on servers no worker has a copy of.
    """
    keeps = round.recovers or round.preempting or (round.keeps and not round.has_servers)
    return keeps and _is_infrastructure(round)


def worth_saving(round: Round) -> bool:
    """True for a round that has ended and could not go on, by no fault of the script's.

    What the machines' memory holds is then the newest state that there is.
    """
    if round.recoverable or round.preempting or round.interrupted or not round.failures:
        return False
    return not any(
        (failure.error or failure.status) and cause_of(failure) is Cause.SCRIPT
        for failure in round.failures
    )


def lacks_machines(round: Round) -> bool:
    """True for a round that has run, and ended because a machine was lost that the job needs."""
    has_run = set(round.ports) >= round.agents
    return has_run and bool(round.lost) and worth_saving(round)


def _is_infrastructure(round: Round) -> bool:
    return all(cause_of(failure) is Cause.INFRASTRUCTURE for failure in round.failures)


# --- the others leave -----------------------------------------------------------------------------


def fail(round: Round) -> Result:
    """A failure in a round that was running: into the next round, or to the end."""
    round = _with_hard_end(round)
    if not worth_leaving(round):
        return _stop(round)
    round = replace(round, state=State.LEAVING)
    if round.has_servers:  # with one of them a part of the state is gone, and nobody has a copy
        return _kill(replace(round, killed=True))
    finished = sorted(round.done & round.awaited)
    killed = (kill(round, finished),) if finished else ()
    timer = SetTimer(state=State.LEAVING, seconds=_grace(round))
    return end_when_over(round, (messages.Leave(round=round.number), *killed, timer))


def _stop(round: Round) -> Result:
    """Ends the round; where a script has failed, the others mostly come to the same end.

    The chief, a moment later than the first: what it says before that is for a person.
    """
    if any(failure.strict for failure in round.failures):
        # Nobody comes to that end by itself: they would go on, and save what is not meant.
        return stop(round, "SIGKILL", 0.0)
    after = 0.0 if _is_infrastructure(round) else round.timeouts.own_end
    return stop(round, "SIGTERM", round.timeouts.stop_grace, after=after)


def regroup(round: Round, event: ChangeMachines) -> Result:
    """The first worker that leaves between two steps has the others leave, as after a failure."""
    if round.preempting or round.done or not mendable(round):
        return round, ()
    timer = () if event.within is None else (SetTimer(state=State.RUNNING, seconds=event.within),)
    round = replace(round, regrouping=round.regrouping | event.agents)
    return round, (messages.Regroup(round=round.number), *timer)


def one_replica_each(round: Round, event: Reported[reports.OneReplicaEach]) -> Result:
    """The script runs again, with one replica on each worker: no failure, so it always may."""
    if round.preempting or round.done:
        return round, ()
    return fail(replace(round, one_each=event.report.reason, recovers=True))


def running_timed_out(round: Round, event: TimedOut) -> Result:
    """A machine has to go, and no step ends: its time does not allow to wait any longer."""
    if round.preempting:
        return chief_not_resumed(round)
    return fail(round) if round.regrouping else (round, ())


def exited_while_leaving(round: Round, event: WorkerExited) -> Result:
    if round.is_aside(event.task):  # however it ends
        return go_on_leaving(round, with_exit(round, event))
    after = with_late_exit(round, event)
    if event.status.code == 0:
        after = replace(after, done=after.done | {event.task})
    return go_on_leaving(round, after)


def raised_while_leaving(round: Round, event: Reported[reports.Error]) -> Result:
    if round.is_aside(event.task):
        return round, ()
    return go_on_leaving(round, with_error(round, event))


def saved_while_leaving(round: Round, event: Reported[reports.SnapshotTaken]) -> Result:
    return go_on_leaving(round, replace(round, saved=round.saved | {event.task}))


def done_while_leaving(round: Round, event: Reported[reports.Done]) -> Result:
    """It would wait for a release that does not come: the next round runs its script again."""
    if event.task in round.waiting:
        return round, ()
    round, actions = go_on_leaving(round, replace(round, done=round.done | {event.task}))
    return round, (kill(round, [event.task]), *actions) if round.state is State.LEAVING else actions


def lost_while_leaving(round: Round, event: AgentLost) -> Result:
    return go_on_leaving(round, without_agent(round, event))


def leave_timed_out(round: Round, event: TimedOut) -> Result:
    if round.killed:  # some processes outlive even SIGKILL: no round has room on their machines
        left = (task.agent for task in round.tasks if task.name in round.awaited)
        return round, (GiveUpAgents(agents=frozenset(left)),)
    if round.waiting and not round.awaited:  # all are out; it is just being decided what follows
        return round, (SetTimer(state=State.LEAVING, seconds=round.timeouts.leave_grace),)
    return _kill(replace(with_silent(round), killed=True))


def _kill(round: Round) -> Result:
    timer = SetTimer(state=State.LEAVING, seconds=round.timeouts.leave_grace)
    tasks = sorted(round.awaited) if round.waiting else ()
    return end_when_over(round, (kill(round, tasks), timer))


def go_on_leaving(before: Round, round: Round) -> Result:
    round = _with_hard_end(round)
    if not worth_leaving(round):
        return _stop(round)
    shorter = not round.killed and _grace(round) < _grace(before)
    timer = SetTimer(state=State.LEAVING, seconds=_grace(round))
    return end_when_over(round, (timer,) if shorter else ())


def _grace(round: Round) -> float:
    """Returns how long those may take that have not left yet.

    Only the state of one that is leaving shortens it: snapshots are written all the time.
    """
    waited_for = round.awaited - round.followers - round.done
    if (round.saved | set(round.stayed)) & round.followers or not waited_for:
        return round.timeouts.straggler_grace
    return round.timeouts.leave_grace


# --- tasks that another process can replace -------------------------------------------------------


# TensorFlow's coordinator gives the work of a worker that has gone to another one and waits for it
# to be back at its address. A parameter server is not replaced: what it held is gone.


def replaced(round: Round, event: WorkerExited) -> Result | None:
    """Has the task started again; None when it cannot be replaced, or has ended too often."""
    if not any(task.name == event.task and task.replaceable for task in round.tasks):
        return None
    failure = with_exit_failure(replace(round, failures=()), event).failures[0]
    if round.is_aside(event.task):
        if event.status.code == 0:
            return with_exit(round, event), ()
        if cause_of(failure) is Cause.SCRIPT:
            return _without(round, event, failure)
    times, last = round.replaced.get(event.task, (0, event.time))
    times = times + 1 if event.time - last < STEADY_SECONDS else 1
    if times > round.replacements:
        return _without(round, event, failure) if round.is_aside(event.task) else None
    round = replace(round, replaced={**round.replaced, event.task: (times, event.time)})
    return round, (ReplaceTask(task=event.task, failure=failure),)


def _without(round: Round, event: WorkerExited, failure: Failure) -> Result:
    return with_exit(round, event), (GoOnWithout(failure=failure),)


def steps_applied(round: Round, event: Reported[reports.Applied]) -> Result:
    """Progress: whoever ends from now on ends for the first time."""
    if event.task != round.chief or event.report.step <= round.applied:
        return round, ()
    return replace(round, applied=event.report.step, replaced={}), ()
