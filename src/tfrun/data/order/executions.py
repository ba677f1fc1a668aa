"""Plans which steps of an epoch a `fit` makes in one call of its train function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

Execution = tuple[int, int, Any]  # first step, last step, iterator


class Pace(Protocol):
    """Says how many steps the executions of a `fit` have."""

    @property
    def steps(self) -> int:
        """Steps of the execution that runs, or comes next."""
        ...

    def stands_at(self, step: int) -> None:
        """So many steps of the training are done."""
        ...

    def most(self) -> int:
        """How many the next one may have; asked before each, on all workers alike."""
        ...

    def begins(self, steps: int) -> None:
        """The next one has so many, at most what `most` has said."""
        ...


def together(steps: Iterable[Execution], total: int, pace: Pace) -> Iterator[Execution]:
    """Yields executions made of single steps, none of which goes over the end of the epoch.

    Args:
      steps: of one epoch, each with the same number first and last.
      total: how many the epoch has. Nothing is asked of `steps` behind the last one before that
        has been made: an epoch's end is not without consequence.
      pace: how many go together.
    """
    single = iter(steps)
    for begin, end, iterator in single:
        for _ in range(min(pace.most(), total - begin) - 1):
            more = next(single, None)
            if more is None:  # the data has ended before the epoch
                break
            end = more[1]
        pace.begins(end + 1 - begin)
        yield begin, end, iterator
