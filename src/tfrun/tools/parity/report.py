"""Reports a comparison: a table with advice for a person, JSON for a program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from tfrun.tools.parity.advice import advice
from tfrun.tools.parity.compare import Comparison, Difference

SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """A parity check that is over.

    Attributes:
      script: the program, as it was stated.
      seed: of all runs.
      tolerance: the largest relative difference in a loss or metric that is none.
      has_random_layers: the model draws random numbers.
      runs: the first run beside itself, then the others.
    """

    script: str
    seed: int
    tolerance: float
    has_random_layers: bool
    runs: tuple[Comparison, ...]

    @property
    def equal(self) -> bool:
        return all(run.equal for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        return {
            "script": self.script,
            "seed": self.seed,
            "tolerance": self.tolerance,
            "equal": self.equal,
            "runs": [self._run(run) for run in self.runs],
        }

    def _run(self, run: Comparison) -> dict[str, Any]:
        parting = run.parting and {
            "step": run.parting.step,
            "differences": [_plain(d) for d in run.parting.differences],
        }
        return {
            "workers": run.workers,
            "steps": run.steps,
            "logs": {name: _number(value) for name, value in run.logs.items()},
            "largest": run.largest and _plain(run.largest),
            "parting": parting,
            "equal": run.equal,
            "advice": advice(run, has_random_layers=self.has_random_layers),
        }


def print_report(report: ParityReport, console: Console) -> None:
    """Prints the table, and below it where the runs part and why that may be."""
    table = Table(title=None, show_edge=False, pad_edge=False)
    for name in ("workers", "steps", "loss", "largest difference"):
        table.add_column(name, justify="right", no_wrap=name != "largest difference")
    table.add_column("in", overflow="fold")  # a variable's path may be longer than the terminal
    table.add_column("equal", no_wrap=True)
    for number, run in enumerate(report.runs):
        largest = run.largest if number else None
        loss = run.logs.get("loss")
        table.add_row(
            str(run.workers),
            str(run.steps),
            "" if loss is None else f"{loss:.6g}",
            f"{largest.far:.1e}" if largest else "",
            name_of(largest) if largest and largest.far else "",
            ("yes" if run.equal else "NO") if number else "",
        )
    console.print(table)
    for run in report.runs:
        if not run.equal:
            console.print(f"{run.workers} workers: {_where(run)}", highlight=False)
            console.print(advice(run, has_random_layers=report.has_random_layers), highlight=False)


def name_of(difference: Difference) -> str:
    """The name by which a person knows it."""
    if difference.kind == "optimizer":
        return f"{difference.name} (optimizer)"
    return difference.name


def _where(run: Comparison) -> str:
    if run.parting is None:
        return f"{run.steps} steps instead of {run.expected_steps}"
    shown = [f"{name_of(d)} by {d.far:.1e}" for d in run.parting.differences[:SHOWN]]
    more = len(run.parting.differences) - len(shown)
    rest = f" and {more} more" if more else ""
    return f"part at step {run.parting.step}: {', '.join(shown)}{rest}"


def _plain(difference: Difference) -> dict[str, Any]:
    return {"kind": difference.kind, "name": difference.name, "far": _number(difference.far)}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
