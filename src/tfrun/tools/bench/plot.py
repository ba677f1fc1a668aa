"""The picture of a benchmark: the times of the all-reduces."""

from __future__ import annotations

from typing import Any

from tfrun.tools.bench.report import BenchReport
from tfrun.tools.bench.sizes import written


def draw(figure: Any, report: BenchReport) -> None:
    """Draws milliseconds over bytes, of each way of communicating and of the link's limit."""
    axes = figure.add_subplot()
    sizes = [one.bytes for one in report.ways[0].sums]
    for way in report.ways:
        axes.plot(sizes, [one.median * 1000 for one in way.sums], "o-", label=way.name)
        low = [min(one.seconds) * 1000 for one in way.sums]
        high = [max(one.seconds) * 1000 for one in way.sums]
        axes.fill_between(sizes, low, high, alpha=0.15, linewidth=0)
    if report.link:
        moved = 2 * (report.workers - 1) / report.workers
        least = [moved * size / report.link * 1000 for size in sizes]
        axes.plot(sizes, least, ":", color="tab:gray", label="the link's limit")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [written(size) for size in sizes], rotation=30)
    axes.minorticks_off()
    axes.set_xlabel("size of the sum")
    axes.set_ylabel("ms (line: median; area: fastest to slowest)")
    axes.set_title(f"all-reduce between {report.workers} workers")
    axes.grid(alpha=0.3)
    axes.legend()
