"""Says what a round knows after a failure, and whether the next round may mend it. Pure."""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.rounds.events import AgentLost, TaskExited, TaskRaised
from tfrun.control.rounds.model import Round
from tfrun.job.errors import CODES
from tfrun.job.exits import EXIT_STRICT, ExitStatus
from tfrun.job.first_failure import Failure
from tfrun.job.reports import Error
from tfrun.job.restart_policy import Cause, cause_of


def with_exit_failure(round: Round, event: TaskExited) -> Round:
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


def _code_of(error: Error | None) -> str:
    """The code of an error of ours; the report comes from the user's process."""
    code = error.code if error else None
    return code if code in CODES else ""


def with_late_exit(round: Round, event: TaskExited) -> Round:
    """Records the exit of a task whose round is ending, as a failure only where that is news."""
    round = replace(round, exits={**round.exits, event.task: event.status})
    # Ends by our own signals are no news; an own exit code, or a signal we did not send, is.
    own_end = event.status.code != 0 and not event.requested and not round.interrupted
    reported = any(f.task == event.task and f.error and not f.status for f in round.failures)
    if own_end or reported or event.status.out_of_memory:
        return with_exit_failure(round, event)
    return round


def with_error(round: Round, event: TaskRaised) -> Round:
    """Records an exception; who tells of one at last has not been silent."""
    code = _code_of(event.error) or "TFRUN-401"
    failure = Failure(
        task=event.task, time=event.time, error=event.error, code=code, strict=event.strict
    )
    others = [f for f in round.failures if not (f.silent and f.task == event.task)]
    return replace(round, failures=(*others, failure))


def without_agent(round: Round, event: AgentLost) -> Round:
    """Records that a machine is gone, with all its tasks."""
    there = {task.name for task in round.tasks_of(event.agent)}
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
    silent = sorted(round.remaining - round.followers - round.done)
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
