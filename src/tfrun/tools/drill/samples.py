"""Finds the samples that a job has lost or repeated, by its ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfrun.data.ledger.proof import examine
from tfrun.job.errors import TfrunError


@dataclass(frozen=True, kw_only=True)
class Samples:
    """How many samples were not consumed, and how many more than once in an epoch."""

    lost: int
    repeated: int


def read(run_dir: Path) -> Samples | None:
    """What the ledger says; None where there is none: the data is no `tfrun.Dataset`."""
    try:
        found: Any = examine(run_dir)
    except (TfrunError, OSError, ValueError, KeyError, IndexError):
        return None
    epochs = getattr(found, "epochs", None)
    if not epochs:
        return None
    return Samples(
        lost=sum(_count(epoch, "missing") for epoch in epochs),
        repeated=sum(_count(epoch, "duplicates") for epoch in epochs),
    )


def _count(epoch: Any, what: str) -> int:
    """All of them; of the named ones there are few."""
    return getattr(epoch, f"{what.removesuffix('s')}_count", len(getattr(epoch, what)))
