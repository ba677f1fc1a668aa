"""Turns a round's actions into messages to its agents. Pure."""

from __future__ import annotations

from tfrun.control.protocol import messages, wire
from tfrun.control.rounds import actions


def order_of(action: actions.Action, number: int) -> wire.Message | None:
    """Returns the message with which all agents are asked for it; None for what is not for all.

    Args:
      action: what the round asks for.
      number: the round's.
    """
    match action:
        case actions.ReleaseTasks():
            return messages.Release(round=number)
        case actions.TellEnded(tasks=tasks):
            return messages.Ended(round=number, tasks=dict(tasks))
        case actions.TellParted(places=places):
            return messages.Parted(round=number, places=dict(places))
        case actions.SaveTasks():
            return messages.Save(round=number)
        case actions.RegroupTasks():
            return messages.Regroup(round=number)
        case actions.LeaveTasks():
            return messages.Leave(round=number)
        case actions.StopTasks(signal=signal, grace=grace, tasks=tasks):
            return messages.StopRound(round=number, signal=signal, grace=grace, tasks=list(tasks))
    return None
