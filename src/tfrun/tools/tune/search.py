"""Decides which batch to try next: doubling, then bisection. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GROWTH = 1.05  # less than that is none
FRACTION = 8  # the last memory-bound batch is found to an eighth


@dataclass(frozen=True, kw_only=True)
class TriedBatch:
    """What came of a batch.

    Attributes:
      batch: samples on each worker.
      rate: samples per second, of all workers; None where it did not run.
      milliseconds: of a step.
      memory: bytes that a worker had at most.
      ended_by: "memory" or "data" (which has fewer samples) where it did not run.
      how: how the worker ended then.
    """

    batch: int
    rate: float | None = None
    milliseconds: float = 0.0
    memory: int = 0
    ended_by: str = ""
    how: str = ""


def next_batch(tried: Mapping[int, TriedBatch], *, start: int, most: int) -> int | None:
    """Returns the batch to try next; None when the best one is known.

    Doubling goes on while it gains 5 %. What then does not run any more is approached by
    bisection; when the first one does not run, by halving.
    """
    if not tried:
        return start
    rates = {batch: result.rate for batch, result in tried.items() if result.rate is not None}
    limit = min((batch for batch in tried if batch not in rates), default=None)
    if not rates:
        smaller = min(tried) // 2
        return smaller or None
    top = max(rates)
    smaller_rates = [rate for batch, rate in rates.items() if batch < top]
    if smaller_rates and rates[top] < GROWTH * max(smaller_rates):
        return None
    if limit is None:
        return top * 2 if top * 2 <= most else None
    step = max(1, top // FRACTION)
    middle = top + (limit - top) // 2 // step * step
    return middle if top < middle < limit else None


def ended_at_most(tried: Mapping[int, TriedBatch], *, most: int) -> bool:
    """Whether nothing but `most` ended the search: the best batch is the largest, and it ran."""
    chosen = best(tried)
    return chosen is not None and chosen.batch == max(tried) and chosen.batch * 2 > most


def best(tried: Mapping[int, TriedBatch]) -> TriedBatch | None:
    """Returns the result with the highest rate; None when nothing ran."""
    ran = [result for result in tried.values() if result.rate is not None]
    return max(ran, key=lambda result: result.rate or 0.0, default=None)
