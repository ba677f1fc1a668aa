"""Writes the line that says with which batch and learning rate a training begins. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrun.job.reports import Training


def training_line(report: Training) -> str:
    """Returns the line for a training that begins."""
    batch, workers = report.global_batch, report.workers or 1
    count = f"{workers} worker" + ("s" if workers != 1 else "")
    if batch is None:
        parts = ["global batch: known to the script alone", count]
    elif workers == 1:
        parts = [f"global batch {batch}", count]
    else:
        most = "at most " if batch % workers else ""
        parts = [f"global batch {batch}", f"{most}{-(-batch // workers)} a worker ({count})"]
    travel = [report.compression] if report.compression else []
    return " · ".join([*parts, *_rate(report.rate), *travel])


def training_key(report: Training) -> tuple[Any, ...]:
    """Returns what has to change for the line to be worth another look.

    A plain rate does not count: scripts set it whenever they like.
    """
    scaled = tuple(report.rate.items()) if "rule" in report.rate else ()
    return report.global_batch, report.workers, scaled


def _rate(rate: Mapping[str, Any]) -> list[str]:
    if "schedule" in rate:
        return [f"learning rate by {rate['schedule']}"]
    if "rate" not in rate:
        return []
    text = f"learning rate {rate['rate']:.6g}"
    if "rule" not in rate:
        return [text]
    warmup = rate.get("warmup_steps")
    rise = f", warm-up of {warmup} step{'s' if warmup != 1 else ''}" if warmup else ""
    how = f"{rate['rule']} rule: {rate['base']:.6g} at batch {rate['base_batch']}"
    return [f"{text} ({how}{rise})"]
