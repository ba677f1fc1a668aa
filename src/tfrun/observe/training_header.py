"""Writes the line that says with which batch and learning rate a training begins. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def training_line(report: Mapping[str, Any]) -> str:
    """Returns the line for a worker's report of the kind "training"."""
    batch, workers = report.get("global_batch"), report.get("workers") or 1
    count = f"{workers} worker" + ("s" if workers != 1 else "")
    if batch is None:
        parts = ["global batch: known to the script alone", count]
    elif workers == 1:
        parts = [f"global batch {batch}", count]
    else:
        most = "at most " if batch % workers else ""
        parts = [f"global batch {batch}", f"{most}{-(-batch // workers)} a worker ({count})"]
    travel = [report["compression"]] if report.get("compression") else []
    return " · ".join([*parts, *_rate(report.get("rate") or {}), *travel])


def training_key(report: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns what has to change for the line to be worth another look.

    A plain rate does not count: scripts set it whenever they like.
    """
    rate = report.get("rate") or {}
    scaled = tuple(rate.items()) if "rule" in rate else ()
    return report.get("global_batch"), report.get("workers"), scaled


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
