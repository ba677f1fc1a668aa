"""Reports what was measured, and what follows from it: tables, a picture, settings, JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from tfrun.job.bench_results import BenchSettings
from tfrun.job.reports import Measured
from tfrun.tools.bench.sizes import written


@dataclass(frozen=True, kw_only=True)
class MeasuredSum:
    """All-reduces of one size, in bytes, and the seconds of each of them."""

    bytes: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds."""
        return median(self.seconds)

    @property
    def rate(self) -> float:
        """Bytes of the sum per second."""
        return self.bytes / self.median

    def share(self, link: float | None, workers: int) -> float | None:
        """Which part of the link's rate was used: a ring sends 2 (W - 1) / W of the sum.

        Above 1 where not everything crosses the link: workers of one machine may share memory.
        """
        return 2 * (workers - 1) / workers * self.rate / link if link else None


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way of communicating.

    Attributes:
      name: the value of --communication.
      sums: the smallest first.
      step: seconds of a step of the synthetic model, the median.
      small_bytes: sums up to so many bytes are faster to all at once; None: not measured.
      pack_bytes: the fastest size of packs; None: not measured.
    """

    name: str
    sums: tuple[MeasuredSum, ...]
    step: float
    small_bytes: int | None = None
    pack_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """A benchmark that is over.

    Attributes:
      workers: how many there were.
      threads: of each worker.
      link: bytes per second that workers can send to the next one, all at once; None: not known.
      model: bytes of the synthetic model's gradients.
      batch: its samples on each worker.
      alone: seconds of its step on one worker.
      ways: the fastest step first.
      failed: ways that did not run, and why.
      gpus: the workers have some.
    """

    workers: int
    threads: int
    link: float | None
    model: int
    batch: int
    alone: float
    ways: tuple[Way, ...]
    failed: Mapping[str, str]
    gpus: bool = False

    def efficiency(self, way: Way) -> float:
        """Samples per second of all workers over those of as many workers that never talk."""
        return self.alone / way.step

    def to_json(self) -> dict[str, Any]:
        ways = [
            {
                "communication": way.name,
                "step_seconds": way.step,
                "efficiency": self.efficiency(way),
                "small_bytes": way.small_bytes,
                "pack_bytes": way.pack_bytes,
                "all_reduce": [
                    {
                        "bytes": one.bytes,
                        "seconds": one.median,
                        "bytes_per_second": one.rate,
                        "share_of_link": one.share(self.link, self.workers),
                    }
                    for one in way.sums
                ],
            }
            for way in self.ways
        ]
        kept = ("workers", "threads", "link", "model", "batch", "alone", "failed")
        return {name: dataclasses.asdict(self)[name] for name in kept} | {"ways": ways}


def way_of(name: str, found: Measured) -> Way:
    """Reads what a job has reported."""
    sums = tuple(
        MeasuredSum(bytes=one["bytes"], seconds=tuple(one["seconds"])) for one in found.all_reduce
    )
    return Way(
        name=name,
        sums=sums,
        step=median(found.step_seconds),
        small_bytes=found.small_bytes,
        pack_bytes=found.pack_bytes,
    )


def print_report(report: BenchReport, console: Console) -> None:
    """Prints the tables and what follows."""
    console.print(_sums(report))
    if report.link:
        console.print(f"link: {report.link / 1e9:.2f} GB/s to the next worker, all at once")
    console.print()
    console.print(_steps(report))
    for name, reason in report.failed.items():
        console.print(f"{name} did not run: {reason}", highlight=False)
    for line in recommendation(report):
        console.print(line, highlight=False)


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


def recommendation(report: BenchReport) -> list[str]:
    """What to start a job with, and what to expect, in sentences."""
    best = report.ways[0]
    lines = [f"recommended: --communication {best.name}"]
    if best.small_bytes is not None:
        lines[0] += f", in one exchange up to {best.small_bytes >> 10} KiB"
    if best.pack_bytes is not None:
        lines[0] += f", packs of {written(best.pack_bytes)}"
    efficiency = report.efficiency(best)
    if efficiency < 0.8 and best.sums:
        waits = (best.step - report.alone) * 1000
        lines.append(
            f"{waits:.0f} of {best.step * 1000:.0f} ms a step are waiting for gradients: a larger "
            f"batch on each worker (tfrun tune), or a smaller model, makes more of the machines"
        )
    return lines


def to_remember(report: BenchReport, date: str) -> BenchSettings | None:
    """What later jobs on these machines use; None where they would have to know more.

    `date` is today's, as ISO 8601 has it.
    """
    best = report.ways[0]
    # With GPUs NCCL is taken where it works. One way alone is the fastest of nothing.
    if report.gpus or len(report.ways) < 2 or best.name not in ("host", "ring"):
        return None
    sizes: dict[str, int] = {}
    for way in report.ways:
        both = {"small_bytes": way.small_bytes, "pack_bytes": way.pack_bytes}
        sizes |= {name: value for name, value in both.items() if value is not None}
    return BenchSettings(communication=best.name, date=date, **sizes)


def _sums(report: BenchReport) -> Table:
    table = _table("all-reduce", *(f"{way.name} (ms)" for way in report.ways), "best (GB/s)", "")
    for number, one in enumerate(report.ways[0].sums):
        same = [way.sums[number] for way in report.ways]
        best = max(same, key=lambda other: other.rate)
        share = best.share(report.link, report.workers)
        table.add_row(
            written(one.bytes),
            *(f"{other.median * 1000:.2f}" for other in same),
            f"{best.rate / 1e9:.2f}",
            f"{share:.0%} of the link" if share else "",
        )
    return table


def _steps(report: BenchReport) -> Table:
    table = _table(f"a step, {written(report.model)} of gradients", "ms", "efficiency")
    table.add_row("one worker alone", f"{report.alone * 1000:.1f}", "")
    for way in report.ways:
        name = f"{report.workers} workers, {way.name}"
        table.add_row(name, f"{way.step * 1000:.1f}", f"{report.efficiency(way):.0%}")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(title=None, show_edge=False, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
