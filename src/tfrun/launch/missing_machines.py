"""Tells who is missing while a round forms, and why, so that no job waits in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tfrun.control.controller import Controller
from tfrun.control.placement import Whereabouts
from tfrun.control.rounds.model import Round, State
from tfrun.control.view import View

INTERVAL_SECONDS = 5.0
MAX_LINES = 10


async def tell_who_is_missing(controller: Controller, known: Whereabouts, view: View) -> None:
    """Shows a line for each missing agent every few seconds, whenever a round waits for some.

    The agent of a local job, of which nothing is known, is never far and not worth a line.
    """
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        runner = controller.runner
        if known.waiting and runner.waited >= INTERVAL_SECONDS / 2:
            for line in missing_lines(runner.round, known.waiting, runner.waited):
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
