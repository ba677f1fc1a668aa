"""Workers that stay: out of their round, they wait in their processes for a place in the next one.

To the round it is as if they had left, with the error that a peer's end leads to; but they keep
model, graph and data. When all are out, whoever knows the machines decides: the next round is in
place, of those that wait; or they are told to leave as well, and fresh processes follow.
"""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.protocol.messages import Leave
from tfrun.control.rounds import after_failure
from tfrun.control.rounds.model import (
    Reported,
    Result,
    Round,
    SetTimer,
    StartTasks,
    State,
    StayDecided,
)
from tfrun.control.rounds.stopping import end_when_over
from tfrun.job.reports import Comes, Error, Stayed

LEFT = Error(type="UnavailableError", message="a peer has left, and the worker stays")


def begin_in_place(round: Round) -> Result:
    """Returns the beginning of a round of processes that wait, whose ports it has already."""
    assert set(round.ports) == round.agents, (round.ports, round.agents)
    return replace(round, state=State.RUNNING, joined=round.agents), (StartTasks(),)


def stayed_while_running(round: Round, event: Reported[Stayed]) -> Result:
    """It has left first: because it was asked to, or lost sight of a peer before that was news."""
    if not _is_in(round, event.task):
        return round, ()
    return after_failure.fail(_with_stay(round, event))


def stayed_while_leaving(round: Round, event: Reported[Stayed]) -> Result:
    if not _is_in(round, event.task) or round.afresh:
        return round, ()
    return after_failure.go_on_leaving(round, _with_stay(round, event))


def comes_while_leaving(round: Round, event: Reported[Comes]) -> Result:
    """It is waited for: without the failure the others would have waited for it as well."""
    if not _is_in(round, event.task) or round.killed:
        return round, ()
    return round, (SetTimer(state=State.LEAVING, seconds=round.timeouts.leave_grace),)


def decided(round: Round, event: StayDecided) -> Result:
    """All are out of the round, and some wait."""
    if not round.waiting or round.awaited:
        return round, ()  # another one has gone since
    if event.in_place and round.recovers and not round.interrupted:
        return replace(round, state=State.ENDED, recoverable=True, in_place=True), ()
    round = replace(round, afresh=True, stayed={}, killed=False)
    timer = SetTimer(state=State.LEAVING, seconds=round.timeouts.leave_grace)
    return end_when_over(round, (Leave(round=round.number), timer))


def _with_stay(round: Round, event: Reported[Stayed]) -> Round:
    error = Reported(task=event.task, time=event.time, report=LEFT)
    round = after_failure.with_error(round, error)
    return replace(round, stayed={**round.stayed, event.task: event.port})


def _is_in(round: Round, task: str) -> bool:
    """True for a worker of the round that is there, and was not out of it yet."""
    return task in round.awaited and not round.is_aside(task) and not round.has_servers
