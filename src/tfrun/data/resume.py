"""Where the next `fit` begins in its data, when its script runs again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Resume:
    """What is done already.

    Attributes:
      epochs: whole epochs of this `fit`.
      steps: steps of the epoch that follows.
      trained: those are all of its steps.
      pipeline: what the workers of parameter servers have trained of a `tf.data` pipeline.
      whole: nothing is left to do: `fit` passes `epochs` epochs of data and trains none.
    """

    epochs: int = 0
    steps: int = 0
    trained: bool = False
    whole: bool = False
    pipeline: tuple[Any, ...] = ()


_requested: tuple[Resume | None, int | None] = None, None


def request(resume: Resume | None, epochs: int | None = None) -> None:
    """The next `fit` in this process begins there.

    Args:
      resume: what is done; None to begin at the beginning.
      epochs: how many epochs this `fit` has at most, those that are done included.
    """
    global _requested
    _requested = resume, epochs


def take() -> tuple[Resume | None, int | None]:
    """The request, once."""
    global _requested
    taken, _requested = _requested, (None, None)
    return taken
