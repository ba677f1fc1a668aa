"""Ends a round at once: after Ctrl-C, or the second SIGTERM."""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.rounds.actions import Result, StopTasks
from tfrun.control.rounds.ending import stop
from tfrun.control.rounds.events import Interrupt
from tfrun.control.rounds.model import Round


def interrupted(round: Round, event: Interrupt) -> Result:
    round = replace(round, interrupted=event.signal)
    signal = "SIGINT" if event.signal == "SIGINT" else "SIGTERM"
    return stop(round, signal, round.timeouts.interrupt_grace)


def interrupted_while_leaving(round: Round, event: Interrupt) -> Result:
    """The failures were about to be mended; what ends the job is the person."""
    return interrupted(replace(round, failures=()), event)


def interrupted_again(round: Round, event: Interrupt) -> Result:
    return replace(round, interrupted=round.interrupted or event.signal), (
        StopTasks(signal="SIGKILL", grace=0),
    )
