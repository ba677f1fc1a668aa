"""Moves replicas from slow workers to fast ones, between two steps: `--balance auto`.

All workers tell each other, once in a window of steps, what one of their replicas takes, and each
decides alike by the same numbers. What goes with a replica is what metrics have counted of it: all
else that a step assigns is the same on all replicas between two steps.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.job import balance, holding, reports
from tfrun.job.world import world
from tfrun.process import channel


class Balance:
    """Decides when replicas of a job move, and moves them.

    Args:
      calls: this worker's `CallsInTurn`.
    """

    def __init__(self, calls: Any) -> None:
        self._calls = calls
        self._steps, self._seconds = 0, list[float]()

    def step_done(self) -> None:
        """A training step is over."""
        turns = self._calls.turns
        self._steps += 1
        if turns.seconds is not None:
            self._seconds.append(turns.seconds / len(turns.held))

    def between_steps(self) -> None:
        """Moves replicas if it is time to, and worth it; where all workers have as many steps."""
        if self._steps < balance.WINDOW:
            return
        mine = balance.typical(self._seconds)
        self._steps, self._seconds = 0, []
        copies = self._calls.turns.copies.counted()
        kinds = repr([(made[0].name, made[0].shape, made[0].dtype) for made in copies])
        told = [[mine, zlib.crc32(kinds.encode())]]
        (found,) = self._calls.all_gather([tf.constant(told, tf.float64)], [0])
        seconds, metrics = np.asarray(found).T.tolist()
        counts = [len(block) for block in holding.blocks()]
        chosen = balance.better(counts, seconds)
        # Who has counted other metrics than the others would give away something else.
        if chosen is not None and len(set(metrics)) == 1:
            self._move(chosen, copies)
            if world().is_chief:
                channel.emit(reports.WorkerNotice(text=_told(counts, chosen, seconds)))

    def _move(self, counts: tuple[int, ...], copies: list[list[Any]]) -> None:
        turns = self._calls.turns
        here = range(len(turns.held))
        mine = [tf.stack([made[place].read_value() for place in here]) for made in copies]
        of_all = self._calls.all_gather(mine, [0] * len(mine)) if mine else []
        holding.move(counts)
        turns.hold(holding.own())
        self._calls.group.hold(holding.blocks())
        for made, values in zip(copies, of_all, strict=True):
            for place, number in enumerate(turns.held):
                made[place].assign(values[number], read_value=False)


def _told(before: list[int], after: tuple[int, ...], seconds: list[float]) -> str:
    each = ", ".join(f"{1e3 * one:.3g} ms" for one in seconds)
    held = f"{_numbers(after)} instead of {_numbers(before)}"
    return f"--balance auto: the workers hold {held} replicas now; one replica takes them {each}."


def _numbers(counts: Any) -> str:
    return ", ".join(map(str, counts))
