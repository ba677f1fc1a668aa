"""What a collective counts, and what it is told of the tensors that it sums."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True)
class Counts:
    """What this worker has done.

    Attributes:
      collectives: how many.
      sums: reductions of one packed array; a collective has one for each dtype.
      copied_bytes: of tensors, before they were sent or summed.
      compressed: of the sums those that have travelled compressed.
    """

    collectives: int = 0
    sums: int = 0
    copied_bytes: int = 0
    compressed: int = 0


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Which of some tensors are gradients: they may travel compressed.

    Attributes:
      which: their positions; all are float32.
      name: of them all, letters and digits: other gradients of this training have another one.
      version: how many times gradients of this name have been summed, in all rounds: a whole
        number, or what has it once a graph runs.
    """

    which: Collection[int]
    name: str
    version: Any
