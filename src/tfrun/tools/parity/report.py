"""Reports a comparison: a table with advice for a person, JSON for a program."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from tfrun.tools.parity.compare import Comparison, Difference, Parting

SHOWN = 3
ROUNDING = 1e-4  # a relative difference that the order of a sum may make
_RANDOM = "seed_generator_state"
_STATISTICS = ("moving_mean", "moving_variance")


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """A parity check that is over: the first run beside itself, then the others.

    `tolerance` is the largest relative difference in a loss or metric that is none. All runs have
    computed with as many `replicas`, and all their bits were compared; None: with one a worker.
    """

    script: str
    seed: int
    tolerance: float
    replicas: int | None = None
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
            "replicas": self.replicas,
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
            "advice": self.advice(run),
        }

    def advice(self, run: Comparison) -> str:
        """Why a run most likely differs from the first; "" where it is equal."""
        if self.replicas and run.parting and 0 < run.parting.differences[0].far < ROUNDING:
            return (
                "The pieces of each batch are the same, so all bits should be. Something adds up "
                "in another order: a sum over workers in the script itself, --compress, or a "
                "library with threads of its own."
            )
        random = self.has_random_layers and not self.replicas  # which draw the same
        return advice(run, has_random_layers=random)


def print_report(report: ParityReport, console: Console) -> None:
    """Prints the table, and below it where the runs part and why that may be."""
    table = Table(title=None, show_edge=False, pad_edge=False)
    for name in ("workers", "steps", "loss", "largest difference"):
        table.add_column(name, justify="right", no_wrap=name != "largest difference")
    table.add_column("in", overflow="fold")  # a variable's path may be longer than the terminal
    table.add_column("equal", no_wrap=True)
    same = f"yes, bit for bit ({report.replicas} replicas)" if report.replicas else "yes"
    for number, run in enumerate(report.runs):
        largest = run.largest if number else None
        loss = run.logs.get("loss")
        table.add_row(
            str(run.workers),
            str(run.steps),
            "" if loss is None else f"{loss:.6g}",
            f"{largest.far:.1e}" if largest else "",
            name_of(largest) if largest and largest.far else "",
            (same if run.equal else "NO") if number else "",
        )
    console.print(table)
    for run in report.runs:
        if not run.equal:
            console.print(f"{run.workers} workers: {_where(run)}", highlight=False)
            console.print(report.advice(run), highlight=False)


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
    return f"diverge at step {run.parting.step}: {', '.join(shown)}{rest}"


def advice(comparison: Comparison, *, has_random_layers: bool) -> str:
    """Returns why two runs most likely differ, in one line; "" for runs that are equal.

    `has_random_layers`: the model has dropout or another layer that draws random numbers.
    """
    parting = comparison.parting
    if parting is None:
        if comparison.equal:
            return ""
        return (
            "The runs made different numbers of steps: something in the script (steps_per_epoch, a "
            "shard, a batch) depends on the number of workers. The global batch should not."
        )
    if parting.step == 0:
        if all(d.name.endswith("learning_rate") for d in parting.differences):
            return (
                "The learning rate depends on the number of workers. The global batch stays the "
                "same in tfrun, and so should the rate."
            )
        return (
            "They differ before the first step: the variables are initialised with a seed that "
            "tfrun does not set (the time, os.urandom, the rank), or the model depends on the "
            "number of workers."
        )
    if parting.before:
        growth = max(d.weight for d in parting.differences) / parting.before
        if growth < 10:
            return (
                "The difference has grown slowly from step to step, as rounding does: sums are "
                "added in another order. --tolerance sets how large a difference counts as none."
            )
    return _sudden(parting, has_random_layers)


def _sudden(parting: Parting, has_random_layers: bool) -> str:
    variables = [d for d in parting.differences if d.kind != "log"]
    logs = [d for d in parting.differences if d.kind == "log"]
    if variables and all(d.name.endswith(_STATISTICS) for d in variables) and not logs:
        return (
            "Only BatchNormalization's statistics differ: each worker normalises its own part of "
            "the batch. BatchNormalization(synchronized=True) takes the whole one."
        )
    if has_random_layers and (logs or any(_RANDOM in d.name for d in variables)):
        return (
            "The model draws random numbers (dropout, noise, augmentation), and each worker draws "
            "its own. To compare the rest, switch that layer off, or make the numbers a function "
            "of the sample: tfrun.Dataset.map(f) with a parameter `seed`."
        )
    if logs:
        return (
            "The loss of a step differs although the weights are equal: it saw other samples (a "
            "batch or a shard by rank, a shuffle without seed), or the loss is not a mean over "
            "the batch. Let tfrun.Dataset, or `fit` itself, share the global batch out."
        )
    if parting.step > 1 and parting.before:
        return (
            "All steps before this one are equal except for rounding, and so is its loss. "
            "Something begins to depend on the number of workers here, such as a schedule, a "
            "callback, or clipping that had no effect before. If the difference does not grow, it "
            "is rounding, amplified where an activation has its kink: --tolerance sets how large "
            "a difference counts as none."
        )
    return (
        "The loss is equal, but the update is not: the gradients are added up differently (a sum "
        "instead of a mean, clipping on each worker), or the learning rate depends on the number "
        "of workers."
    )


def _plain(difference: Difference) -> dict[str, Any]:
    return {"kind": difference.kind, "name": difference.name, "far": _number(difference.far)}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
