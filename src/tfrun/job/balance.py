"""Decides how many replicas each worker holds, from how long it takes for one. Pure.

The step is as slow as its slowest worker. What workers take for a replica is measured over a
window of steps, so it is what they took with the replicas that they held.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Sequence

WINDOW = 50  # steps between two decisions
_GROUP = 10  # a quota of the CPU makes one step in several slow, a pause one of many
LEAST_GAIN = 0.1  # of a step: to move costs time, and what is measured varies


def typical(seconds: Sequence[float]) -> float:
    """What one of these steps takes: a pause counts little, what returns each few steps in full.

    Args:
      seconds: of each step, in order.

    Returns:
      The median of means over some steps; NaN of none.
    """
    if not seconds:
        return math.nan
    groups = (seconds[i : i + _GROUP] for i in range(0, len(seconds), _GROUP))
    return statistics.median(statistics.fmean(group) for group in groups)


def better(counts: Sequence[int], seconds: Sequence[float]) -> tuple[int, ...] | None:
    """Returns how many replicas each worker is to hold; None where it may stay as it is.

    Args:
      counts: what each holds, by rank; at least one.
      seconds: what each takes for one of them.
    """
    if not all(math.isfinite(each) and each > 0 for each in seconds):
        return None
    found = [1] * len(counts)
    ends = [(2 * each, rank) for rank, each in enumerate(seconds)]  # with one more
    heapq.heapify(ends)
    for _ in range(sum(counts) - len(counts)):
        _, rank = heapq.heappop(ends)
        found[rank] += 1
        heapq.heappush(ends, ((found[rank] + 1) * seconds[rank], rank))
    gain = 1 - _step(found, seconds) / _step(counts, seconds)
    return tuple(found) if gain >= LEAST_GAIN else None


def _step(counts: Sequence[int], seconds: Sequence[float]) -> float:
    return max(count * each for count, each in zip(counts, seconds, strict=True))
