"""Computes what more workers make of a per-worker batch: global batch, steps, rate. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrun.job.learning_rate_rules import factor


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """What a number of workers makes of a per-worker batch.

    Attributes:
      workers: how many.
      global_batch: what to state as `batch_size`.
      steps: in an epoch; 0 when the data has not even one whole batch.
      rate: the learning rate that follows; None when it is not known.
      rule: by which it follows, with what from.
    """

    workers: int
    global_batch: int
    steps: int
    rate: float | None
    rule: str


def scaled(
    batch: int, worlds: Sequence[int], *, samples: int, stated: int | None, rate: Mapping[str, Any]
) -> list[Scaled]:
    """Returns a row for each number of workers.

    Args:
      batch: samples on each worker.
      worlds: the numbers.
      samples: in an epoch.
      stated: the script's own global batch.
      rate: its learning rate, as it was reported.
    """
    rows = []
    for workers in worlds:
        size = batch * workers
        value, rule = _rate(size, stated, rate)
        rows.append(
            Scaled(
                workers=workers,
                global_batch=size,
                steps=-(-samples // size) if size <= samples else 0,
                rate=value,
                rule=rule,
            )
        )
    return rows


def _rate(size: int, stated: int | None, rate: Mapping[str, Any]) -> tuple[float | None, str]:
    if "rule" in rate:
        base, at = rate["base"], rate["base_batch"]
        grown = base * factor(rate["rule"], size / at)
        return grown, f"{rate['rule']} rule: {base:g} at batch {at}"
    if "rate" in rate and stated:
        at, base = stated, rate["rate"]
        return base * factor("linear", size / at), f"linear rule: {base:g} at batch {at}"
    return None, ""
