"""Where the next `fit` begins in its data, when its script runs again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from tfrun.data.order.passes import Passes


def _nothing(epoch: int) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Resume:
    """What is done already.

    Attributes:
      epochs: whole epochs of this `fit`.
      steps: steps of the epoch that follows.
      skip: samples of the batch after them.
      trained: those are all of its steps.
      stopped: the epoch was left after those steps, before its data had ended.
      pipeline: what the workers of parameter servers have trained of a `tf.data` pipeline.
      whole: nothing is left to do: `fit` passes `epochs` epochs of data and trains none.
      begun: how often the data had been begun before the epoch that follows, see `Passes.stand`;
        None if unknown.
      passing: a context in which what is done is passed by: data may draw random numbers.
      after_epoch: called with the number of each whole epoch, from 0, once its data is passed.
    """

    epochs: int = 0
    steps: int = 0
    skip: int = 0
    trained: bool = False
    stopped: bool = False
    whole: bool = False
    pipeline: tuple[Any, ...] = ()
    begun: list[int] | None = None
    passing: Callable[[], AbstractContextManager] = nullcontext
    after_epoch: Callable[[int], None] = _nothing


@dataclass(kw_only=True)
class Request:
    """What the next `fit` is to do, and what it tells of its data.

    Attributes:
      resume: what is done; None to begin at the beginning.
      epochs: how many epochs this `fit` has at most, those that are done included.
      passes: how often the data has been begun so far; `fit` gives its own.
    """

    resume: Resume | None = None
    epochs: int | None = None
    passes: Passes = field(default_factory=Passes)


_requested: Request = Request()


def request(resume: Resume | None, epochs: int | None = None) -> Request:
    """The next `fit` in this process begins there.

    Args:
      resume: what is done; None to begin at the beginning.
      epochs: how many epochs this `fit` has at most, those that are done included.
    """
    global _requested
    _requested = Request(resume=resume, epochs=epochs)
    return _requested


def take() -> Request:
    """The request, once."""
    global _requested
    taken, _requested = _requested, Request()
    return taken
