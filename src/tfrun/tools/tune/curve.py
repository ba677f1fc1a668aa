"""The curve of a tuning as a PNG file. Needs matplotlib, the extra `plot`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfrun.job.errors import UsageError
from tfrun.tools.tune.search import Result

NOT_DRAWN = 'no picture was drawn, for want of matplotlib: pip install "tfrun[plot]" brings it'


def can_draw() -> bool:
    """True where matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def missing() -> UsageError:
    """The error where it is not."""
    return UsageError(
        "TFRUN-803",
        "the curve cannot be drawn: matplotlib is not installed",
        where="--plot",
        fix='pip install "tfrun[plot]" brings it',
    )


def draw(path: Path, results: Sequence[Result], chosen: Result, title: str) -> None:
    """Draws samples per second and memory over the batch.

    Args:
      path: the file.
      results: of all batches that were tried.
      chosen: the best one, marked.
      title: above it.

    Raises:
      UsageError: TFRUN-105 where the file cannot be written.
    """
    # Not the windows of pyplot: this may be a machine without a screen.
    figure: Any = importlib.import_module("matplotlib.figure").Figure(figsize=(7, 4.5))
    axes = figure.add_subplot()
    ran = sorted((r for r in results if r.rate is not None), key=lambda r: r.batch)
    batches = [r.batch for r in ran]
    axes.plot(batches, [r.rate for r in ran], "o-", color="tab:blue")
    axes.plot([chosen.batch], [chosen.rate], "o", color="tab:red", markersize=10, label="chosen")
    for result in results:
        if result.ended_by == "memory":
            axes.axvline(result.batch, color="tab:red", linestyle=":", label="out of memory")
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("batch of a worker")
    axes.set_ylabel("samples/s", color="tab:blue")
    memory = axes.twinx()
    memory.plot(batches, [r.memory / 1e9 for r in ran], "s--", color="tab:gray", markersize=4)
    # Mostly a flat line, which would lie on the frame.
    memory.set_ylim(0, 1.15 * memory.get_ylim()[1])
    memory.set_ylabel("peak memory of a worker (GB)", color="tab:gray")
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), loc="lower right")
    axes.set_title(title)
    write(path, figure)


def write(path: Path, figure: Any) -> None:
    """Writes a figure of matplotlib's as PNG.

    Raises:
      UsageError: TFRUN-105 where the file cannot be written.
    """
    try:
        figure.savefig(path, format="png", dpi=150, bbox_inches="tight")
    except OSError as error:
        raise UsageError(
            "TFRUN-105", f"{str(path)!r} cannot be written: {error.strerror}", where="--plot"
        ) from None
