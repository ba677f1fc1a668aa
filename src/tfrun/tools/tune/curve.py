"""The curve of a tuning: samples per second and memory over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfrun.tools.tune.search import Result


def draw(figure: Any, results: Sequence[Result], chosen: Result, title: str) -> None:
    """Draws it.

    Args:
      figure: of matplotlib's.
      results: of all batches that were tried.
      chosen: the best one, marked.
      title: above it.
    """
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
