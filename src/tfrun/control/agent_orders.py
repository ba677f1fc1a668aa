"""What a round asks of all its agents, as the message that they are sent. Pure."""

from __future__ import annotations

from tfrun.control.protocol import messages, wire
from tfrun.control.rounds import model as terms
from tfrun.control.rounds.waits import TellEnded, TellParted


def order_of(action: terms.Action, number: int) -> wire.Message | None:
    """Returns the message with which all agents are asked for it; None for what is not for all.

    Args:
      action: what the round asks for.
      number: the round's.
    """
    match action:
        case terms.ReleaseTasks():
            return messages.Release(round=number)
        case TellEnded(tasks=tasks):
            return messages.Ended(round=number, tasks=dict(tasks))
        case TellParted(places=places):
            return messages.Parted(round=number, places=dict(places))
        case terms.SaveTasks():
            return messages.Save(round=number)
        case terms.RegroupTasks():
            return messages.Regroup(round=number)
        case terms.LeaveTasks():
            return messages.Leave(round=number)
        case terms.StopTasks(signal=signal, grace=grace, tasks=tasks):
            return messages.StopRound(round=number, signal=signal, grace=grace, tasks=list(tasks))
    return None
