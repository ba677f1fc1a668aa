"""Ends a round: stops its tasks, and finishes once no process is left.

What the machines' memory alone holds is saved after that, where nobody will go on from it.
"""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.rounds.actions import Action, Result, SaveMemory, SetTimer, StopTasks
from tfrun.control.rounds.events import TimedOut
from tfrun.control.rounds.model import Round, State


def stop(round: Round, signal: str, grace: float) -> Result:
    """Ends all tasks by `signal`, and by SIGKILL `grace` seconds later."""
    not_started = round.state in (State.JOINING, State.PREPARING)
    round = replace(round, state=State.ENDED if not_started else State.STOPPING)
    timer = SetTimer(state=State.STOPPING, seconds=grace + round.timeouts.agent_exit)
    return end_when_over(round, (StopTasks(signal=signal, grace=grace), timer))


def end_when_over(round: Round, actions: tuple[Action, ...] = ()) -> Result:
    """Ends the round if no process is left, else it goes on with `actions`."""
    if not round.is_over:
        return round, actions
    if round.in_memory:
        return save_memory(round)
    recoverable = round.state is State.LEAVING and round.recovers
    return replace(round, state=State.ENDED, recoverable=recoverable), ()


def exit_timed_out(round: Round, event: TimedOut) -> Result:
    """Processes that outlive even SIGKILL (in the kernel) do not hold the job's end up."""
    if event.state is not round.state:
        return round, ()
    return save_memory(round) if round.in_memory else (replace(round, state=State.ENDED), ())


def save_memory(round: Round) -> Result:
    """No process is left, and no round follows: a machine saves what its memory holds."""
    round = replace(round, state=State.SAVING, in_memory=True, recoverable=False)
    return round, (
        SaveMemory(),
        SetTimer(state=State.SAVING, seconds=round.timeouts.preempt_grace),
    )
