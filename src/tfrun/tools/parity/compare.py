"""Finds where two runs of a script begin to differ. Pure."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Below this (root mean square) a variable's own size is no measure: a bias that begins at zero, or
# one whose gradient is nothing but rounding.
FLOOR = 1e-3

# A variable may be so many times the tolerance away, a loss or metric may not. Where an activation
# or a maximum stands at its kink, rounding decides which way the gradient goes, and a small one
# moves by 1e-4 of itself while no loss feels it (examples/digits.py: the bias of the convolution,
# at step 8). A sum instead of a mean, other samples or another rate move it by 1e-2 and more.
VARIABLES = 100


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """How a run stood after a step; see train/recording.py for the sketches.

    Attributes:
      step: its number; 0 is before the first one.
      logs: losses and metrics by name.
      sketches: of each variable by name.
      sizes: how many numbers each variable has.
      digests: of the bits of each variable.
    """

    step: int
    logs: Mapping[str, float] = field(default_factory=dict)
    sketches: Mapping[str, NDArray] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far two runs are apart in one thing.

    Attributes:
      kind: "log", "model" or "optimizer".
      name: of the loss or metric, or the variable's path.
      far: the distance, relative to the value in the first run; infinite where only one run has
        it, or has a number.
      step: after which.
    """

    kind: str
    name: str
    far: float
    step: int

    @property
    def weight(self) -> float:
        """`far`, in which 1e-5 means as much in a variable as in a loss."""
        return self.far / VARIABLES if self.kind != "log" and self.step else self.far


@dataclass(frozen=True, kw_only=True)
class Parting:
    """The first step in which two runs differ.

    Attributes:
      step: its number; 0 is before the first one.
      differences: those above the tolerance; losses and metrics first, then the farthest.
      before: the largest weight in the step before it, 0 without one.
    """

    step: int
    differences: tuple[Difference, ...]
    before: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A run beside the first one.

    Attributes:
      workers: how many it had.
      steps: that it has made.
      expected_steps: that the first run has made.
      logs: its losses and metrics after the last step that both have made.
      largest: the one of most weight in any step that both have made.
      parting: None where they never part.
    """

    workers: int
    steps: int
    expected_steps: int
    logs: Mapping[str, float]
    largest: Difference | None
    parting: Parting | None

    @property
    def equal(self) -> bool:
        return self.parting is None and self.steps == self.expected_steps


def compare(
    workers: int, first: Sequence[StepRecord], other: Sequence[StepRecord], tolerance: float
) -> Comparison:
    """Compares a run with the first one.

    Args:
      workers: of the other run.
      first: the records of the first one.
      other: of the other.
      tolerance: the largest relative difference in a loss or metric that is none; in a variable,
        once it is trained, `VARIABLES` times as much is none. 0: all bits have to be equal.
    """
    theirs = {record.step: record for record in other}
    largest, parting, before = None, None, 0.0
    for mine in first:
        if mine.step not in theirs:
            continue
        found = sorted(differences(mine, theirs[mine.step]), key=_rank)
        above = tuple(d for d in found if d.weight > tolerance)
        if above and parting is None:
            parting = Parting(step=mine.step, differences=above, before=before)
        top = max(found, key=lambda d: d.weight, default=None)
        before = top.weight if top else 0.0
        if top is not None and (largest is None or top.weight > largest.weight):
            largest = top
    shared = [record for record in first if record.step in theirs]
    return Comparison(
        workers=workers,
        steps=other[-1].step if other else 0,
        expected_steps=first[-1].step if first else 0,
        logs=theirs[shared[-1].step].logs if shared else {},
        largest=largest,
        parting=parting,
    )


def differences(first: StepRecord, other: StepRecord) -> Iterator[Difference]:
    """Yields how far two runs are apart after a step, in everything."""
    for name in {**first.logs, **other.logs}:
        far = math.inf
        if name in first.logs and name in other.logs:
            a, b = np.array([first.logs[name]]), np.array([other.logs[name]])
            far = distance(a, b, 1)
        yield Difference(kind="log", name=name, far=far, step=first.step)
    for name in {**first.sketches, **other.sketches}:
        kind, _, rest = name.partition("/")
        far = math.inf
        if (
            not first.step
            and kind == "optimizer"
            and not (name in first.sizes and name in other.sizes)
        ):
            continue  # some are made by the first step only
        if first.sizes.get(name) == other.sizes.get(name):
            far = distance(first.sketches[name], other.sketches[name], first.sizes[name])
            if first.digests.get(name) != other.digests.get(name):
                far = max(far, sys.float_info.min)  # sketches may be equal where bits are not
        yield Difference(kind=kind, name=rest.partition("/")[2], far=far, step=first.step)


def distance(first: NDArray, other: NDArray, size: int) -> float:
    """Returns the norm of the difference relative to that of `first`.

    Both are sketches, float64 of one shape, of a variable of `size` numbers.
    """
    unknown = np.isnan(first) | np.isinf(first)
    if not np.array_equal(unknown, np.isnan(other) | np.isinf(other)):
        return math.inf
    a, b = first[~unknown], other[~unknown]
    scale = max(float(np.linalg.norm(a)), FLOOR * math.sqrt(size))
    return float(np.linalg.norm(b - a)) / scale


def _rank(difference: Difference) -> tuple[bool, float]:
    return difference.kind != "log", -difference.far
