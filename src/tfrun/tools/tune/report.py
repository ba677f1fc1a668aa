"""Reports a tuning: the table, what follows, the curve, and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from tfrun.job.learning_rate_rules import factor
from tfrun.tools.tune.search import TriedBatch


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


@dataclass(frozen=True, kw_only=True)
class TuneReport:
    """A tuning that is over: all batches that were tried, the smallest first, and the best one.

    `scaled` is what follows from it for more workers; `most` the largest batch that was allowed,
    where that alone ended the search, else None.
    """

    script: str
    workers: int
    results: tuple[TriedBatch, ...]
    chosen: TriedBatch
    scaled: tuple[Scaled, ...]
    most: int | None = None

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def scaled(
    batch: int, worlds: Sequence[int], *, samples: int, stated: int | None, rate: Mapping[str, Any]
) -> list[Scaled]:
    """Returns a row for each number of workers.

    `samples` are those of an epoch, `stated` the script's own global batch, `rate` its learning
    rate, as it was reported.
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


def _end(result: TriedBatch) -> str:
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


def draw(figure: Any, report: TuneReport, title: str) -> None:
    """Draws samples per second and memory over the batch, in a figure of matplotlib's."""
    axes, chosen = figure.add_subplot(), report.chosen
    ran = sorted((r for r in report.results if r.rate is not None), key=lambda r: r.batch)
    batches = [r.batch for r in ran]
    axes.plot(batches, [r.rate for r in ran], "o-", color="tab:blue")
    axes.plot([chosen.batch], [chosen.rate], "o", color="tab:red", markersize=10, label="chosen")
    for result in report.results:
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
