"""Finds where training goes on when the data has other batches now than when it was saved.

A person may resume with another batch size, and a script that takes so many samples a worker has
another one as soon as the number of workers changes. The place is then one in samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, kw_only=True)
class Reads:
    """How a training reads an epoch; None for what nobody knows.

    Attributes:
      batch: samples of a global batch.
      samples: of an epoch.
      steps: of an epoch.
      whole: an epoch is all of the data, and no other number of steps that the script has chosen.
      exact: training can begin within a batch (arrays, a `tfrun.Dataset`).
      ordered: the same samples follow each other in batches of any size.
    """

    batch: int | None = None
    samples: int | None = None
    steps: int | None = None
    whole: bool = True
    exact: bool = False
    ordered: bool = True

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Reads:
        """What `asdict` has made of one; nothing is known of what an older tfrun has kept."""
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**known)

    def kept(self, seen: int | None) -> dict[str, Any]:
        """What belongs to a state: this, and the samples of the epoch that it has seen."""
        return {**asdict(self), "seen": seen}

    def seen(self, steps: int) -> int | None:
        """Samples of so many steps of an epoch."""
        if self.batch is None:
            return None
        return min(steps * self.batch, self.samples or steps * self.batch)


NOTHING_KNOWN = Reads()


class ResumePoint(NamedTuple):
    """Where an epoch goes on.

    Attributes:
      step: steps that are done, in batches of now.
      skip: samples of the next batch that are done too.
      doubt: what is wrong with it, for a person; empty where each sample is trained once.
    """

    step: int
    skip: int = 0
    doubt: str = ""


def where(
    then: Mapping[str, Any], now: Reads, *, step: int, epochs: int = 0, trained: bool = False
) -> ResumePoint:
    """Returns where to go on.

    Args:
      then: what `Reads.kept` has told; empty where an older tfrun has kept the state.
      now: how the data is read now.
      step: steps of the epoch that were done, in batches of then.
      epochs: of this training, before the one that is gone on in.
      trained: those steps are all of the epoch.
    """
    before, seen = Reads.of(then), then.get("seen")
    changed = _changed(before, now)
    if not changed:
        done = before.seen(step)
        return ResumePoint(step, max(seen - done, 0) if seen and done is not None else 0)
    near = _near(seen, now, step)
    if not (before.whole and now.whole) and (epochs or step):
        return near._replace(doubt=f"{changed}, and epochs have a number of steps")
    if trained:
        return ResumePoint(now.steps if now.steps is not None else step)
    if not step and not seen:
        return ResumePoint(0)
    other = _other_amount(before, now) or not (before.ordered and now.ordered)
    if other or seen is None or now.batch is None:
        return near._replace(doubt=f"{changed}, in the middle of an epoch")
    done, skip = divmod(seen, now.batch)
    if skip and not now.exact:
        text = (
            f"{seen:,} samples of the epoch are done, which is not a whole number of batches of "
            f"{now.batch:,}"
        )
        return ResumePoint(done, doubt=text)
    return ResumePoint(done, skip)


def _near(seen: int | None, now: Reads, step: int) -> ResumePoint:
    """About as far, for who wants to go on nevertheless."""
    done = step if seen is None or not now.batch else seen // now.batch
    return ResumePoint(done if now.steps is None else min(done, now.steps))


def _other_amount(before: Reads, now: Reads) -> bool:
    """Whether the samples of an epoch are known not to be as many as they were."""
    if before.samples is not None and now.samples is not None:
        return before.samples != now.samples
    if before.batch == now.batch and None not in (before.steps, now.steps):
        return before.steps != now.steps
    (low, high), (now_low, now_high) = _amount(before), _amount(now)
    return low >= now_high or now_low >= high


def _amount(reads: Reads) -> tuple[float, float]:
    """The samples of an epoch are more than the first number, and fewer than the second."""
    if reads.samples is not None:
        return reads.samples - 1, reads.samples + 1
    if reads.batch is None or reads.steps is None:
        return -1, math.inf
    # The last batch may be short, or a short one may have been dropped.
    return (reads.steps - 1) * reads.batch, (reads.steps + 1) * reads.batch


def _changed(before: Reads, now: Reads) -> str:
    """What is known to be other than it was, the first of it, for a person."""
    said = [
        f"{what} {then:,} {unit} and has {new:,} now"
        for what, then, new, unit in (
            ("the data had", before.samples, now.samples, "samples"),
            ("a global batch had", before.batch, now.batch, "samples"),
            ("an epoch had", before.steps, now.steps, "steps"),
        )
        if then is not None and new is not None and then != new
    ]
    return "; ".join(said[:1])
