"""Reports a drill: a table for a person, JSON for a program."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from tfrun.tools.drill.verdict import Row


@dataclass(frozen=True, kw_only=True)
class DrillReport:
    """A drill that is over, with a row for each fault.

    `seed` has decided the moments and the victims, and is the jobs' own; `seconds` is how long the
    undisturbed run took.
    """

    script: str
    workers: int
    seed: int
    seconds: float
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """True when every fault came, and no promise was broken."""
        return all(row.ok for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        rows = [{**dataclasses.asdict(row), "ok": row.ok} for row in self.rows]
        return {**dataclasses.asdict(self), "rows": rows, "ok": self.ok}


def print_report(report: DrillReport, console: Console) -> None:
    """Prints the table, and why a row is not ok."""
    table = Table(title=None, show_edge=False, pad_edge=False)
    table.add_column("fault")
    for name in ("noticed (s)", "first new step (s)", "steps lost", "samples lost/repeated"):
        table.add_column(name, justify="right")
    table.add_column("weights")
    stays = any(row.in_place for row in report.rows)
    if stays:
        table.add_column("in place", justify="right")
    table.add_column("ok")
    for row in report.rows:
        *cells, verdict = _cells(row)
        kept = [f"{row.in_place} of {row.recoveries}"] if stays else []
        table.add_row(*cells, *kept, verdict)
    console.print(table)
    for row in report.rows:
        if row.skipped:
            console.print(f"{row.fault}: skipped: {row.skipped}")
        if row.broken:
            console.print(f"{row.fault}: {', '.join(row.broken)} (see {row.run_dir}.log)")
        elif 0 < row.hit < row.times:
            console.print(
                f"{row.fault}: the job was over after {row.hit} of {row.times}: it has to be longer"
            )
    if any(row.weights_equal is False for row in report.rows):
        console.print(
            "Weights differ. Does the script fix its random seeds? --deterministic has TensorFlow "
            "compute the same bits each time."
        )


def _cells(row: Row) -> tuple[str, ...]:
    name = row.fault if row.times < 2 else f"{row.fault} x {row.hit}"
    if not row.hit and not row.broken:
        return (name, "", "", "", "", "", "SKIPPED" if row.skipped else "not hit")
    first = "" if row.fault == "disk" else _number(row.first_step)
    if row.hit > 1 and row.slowest is not None:
        first += f" (at most {row.slowest:.2f})"
    lost = f"{'' if row.steps_lost_exact else '>= '}{row.steps_lost}"
    equal = {True: "equal", False: "differ", None: "unknown"}[row.weights_equal]
    known = row.samples_lost is not None
    samples = f"{row.samples_lost}/{row.samples_repeated}" if known else "unknown"
    verdict = "ok" if row.ok else "FAILED"
    return (name, _number(row.noticed), first, lost, samples, equal, verdict)


def _number(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.2f}"
