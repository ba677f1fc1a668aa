"""Says who is missing while the cluster forms, and why: a start never hangs in silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from tfrun.control.controller import Controller, View
from tfrun.control.plan import Whereabouts
from tfrun.control.rounds import Round, State

INTERVAL_SECONDS = 5.0
MAX_LINES = 10


async def tell_who_is_missing(controller: Controller, known: Whereabouts, view: View) -> None:
    """Shows a line for each missing agent every few seconds, until none is missing.

    The agent of a local job, of which nothing is known, is never far and not worth a line.
    """
    began = time.monotonic()
    while controller.round.state in (State.JOINING, State.PREPARING):
        await asyncio.sleep(INTERVAL_SECONDS)
        if known.waiting:
            for line in missing_lines(controller.round, known.waiting, time.monotonic() - began):
                view.notice(line)


def missing_lines(round: Round, waiting: Mapping[str, str], seconds: float) -> list[str]:
    """Returns one line for each agent that the round still waits for, ten at most.

    Args:
      round: the round.
      waiting: why an agent has not joined, as far as that is known.
      seconds: since when the cluster has been forming.
    """
    if round.state is State.JOINING:
        there = round.joined
        why = {agent: waiting.get(agent, "its agent has not joined") for agent in round.agents}
    elif round.state is State.PREPARING:
        there = frozenset(round.ports)
        why = dict.fromkeys(round.agents, "TensorFlow is being imported there")
    else:
        return []
    missing = sorted(round.agents - there)
    lines = [f"waiting for {agent} ({seconds:.0f} s): {why[agent]}" for agent in missing]
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"waiting for {len(lines) - MAX_LINES} more hosts"]
    return lines
