"""Ends a round: stops its tasks, at once where a person asks; finishes once no process is left.

What the machines' memory alone holds is saved after that, where nobody will go on from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tfrun.control.protocol.messages import SaveMemory, StopRound
from tfrun.control.rounds.model import (
    Action,
    DecideStay,
    Interrupt,
    Result,
    Round,
    SetTimer,
    State,
    TimedOut,
)


def stop(round: Round, signal: str, grace: float, *, after: float = 0.0) -> Result:
    """Ends all tasks by `signal`, and by SIGKILL `grace` seconds later.

    Args:
      round: the round.
      signal: its name.
      grace: see above.
      after: for so many seconds their scripts may end by themselves first.
    """
    not_started = round.state in (State.JOINING, State.PREPARING)
    round = replace(round, state=State.ENDED if not_started else State.STOPPING)
    order = StopRound(round=round.number, signal=signal, grace=grace, after=after)
    seconds = after + grace + round.timeouts.agent_exit
    timer = SetTimer(state=State.STOPPING, seconds=seconds)
    return end_when_over(round, (order, timer))


def kill(round: Round, tasks: Iterable[str] = ()) -> StopRound:
    """Returns the order that ends these tasks at once, or all."""
    return StopRound(round=round.number, signal="SIGKILL", grace=0, tasks=list(tasks))


def end_when_over(round: Round, actions: tuple[Action, ...] = ()) -> Result:
    """Ends the round if no process is left, else it goes on with `actions`.

    Where those that are left wait for the next round, whoever knows the machines decides on that.
    """
    if round.state is State.LEAVING and round.waiting and not round.awaited:
        return round, (*actions, DecideStay())
    if not round.is_over:
        return round, actions
    if round.in_memory:
        return save_memory(round)
    recoverable = round.state is State.LEAVING and round.recovers
    return replace(round, state=State.ENDED, recoverable=recoverable), ()


def exit_timed_out(round: Round, event: TimedOut) -> Result:
    """Processes that outlive even SIGKILL (in the kernel) do not hold the job's end up."""
    return save_memory(round) if round.in_memory else (replace(round, state=State.ENDED), ())


def save_memory(round: Round) -> Result:
    """No process is left, and no round follows: a machine saves what its memory holds."""
    round = replace(round, state=State.SAVING, in_memory=True, recoverable=False)
    timer = SetTimer(state=State.SAVING, seconds=round.timeouts.preempt_grace)
    return round, (SaveMemory(round=round.number), timer)


# --- Ctrl-C, or the second SIGTERM ----------------------------------------------------------------


def interrupted(round: Round, event: Interrupt) -> Result:
    round = replace(round, interrupted=event.signal)
    signal = "SIGINT" if event.signal == "SIGINT" else "SIGTERM"
    return stop(round, signal, round.timeouts.interrupt_grace)


def interrupted_while_leaving(round: Round, event: Interrupt) -> Result:
    """The failures were about to be mended; what ends the job is the person."""
    return interrupted(replace(round, failures=()), event)


def interrupted_again(round: Round, event: Interrupt) -> Result:
    return replace(round, interrupted=round.interrupted or event.signal), (kill(round),)
