"""Reports a tuning: the table, what follows, and JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from tfrun.tools.tune.scale import Scaled
from tfrun.tools.tune.search import Result


@dataclass(frozen=True, kw_only=True)
class TuneReport:
    """A tuning that is over.

    Attributes:
      script: the program, as it was stated.
      workers: how many it ran on.
      results: of all batches that were tried, the smallest first.
      chosen: the best one.
      scaled: what follows from it for more workers.
      most: the largest batch that was allowed, where that alone ended the search; else None.
    """

    script: str
    workers: int
    results: tuple[Result, ...]
    chosen: Result
    scaled: tuple[Scaled, ...]
    most: int | None = None

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def print_report(report: TuneReport, console: Console) -> None:
    """Prints both tables."""
    table = Table(title=None, show_edge=False, pad_edge=False)
    for name in ("batch of a worker", "ms a step", "samples/s", "memory (GB)"):
        table.add_column(name, justify="right")
    table.add_column("")
    for result in report.results:
        mark = "chosen" if result is report.chosen else _end(result)
        if result.rate is None:
            table.add_row(str(result.batch), "", "", "", mark)
        else:
            ms, rate = f"{result.milliseconds:.1f}", f"{result.rate:,.0f}"
            table.add_row(str(result.batch), ms, rate, f"{result.memory / 1e9:.2f}", mark)
    console.print(table)
    if report.most is not None:
        note = f"It ended at --most {report.most}: a larger batch may have a higher rate still."
        console.print(note, highlight=False)
    for row in report.scaled:
        console.print(_line(row), highlight=False)


def _end(result: Result) -> str:
    return {
        "": "",
        "memory": f"out of memory: {result.how}",
        "data": f"more than the data: {result.how}",
    }[result.ended_by]


def _line(row: Scaled) -> str:
    workers = f"{row.workers} worker" + ("s" if row.workers != 1 else "")
    text = f"{workers}: global batch {row.global_batch}"
    if not row.steps:
        return f"{text}, more than the data has"
    text += f", {row.steps} step" + ("s" if row.steps != 1 else "") + " an epoch"
    return f"{text}, learning rate {row.rate:.6g} ({row.rule})" if row.rate is not None else text
