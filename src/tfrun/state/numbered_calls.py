"""Numbers a script's trainings, and knows how far its earlier run had come in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfrun.data.ledger import writer as ledger
from tfrun.job.settings import settings
from tfrun.state import durable_checkpoints, share_snapshot, snapshot
from tfrun.state.snapshot import Place

_begun = 0  # trainings
_target: list[Place | None] = []
_before_next: list[Callable[[], None]] = []


def begin() -> int:
    """The number of a training that begins: the script's run after this one counts the same."""
    global _begun
    while _before_next:
        _before_next.pop()()
    number, _begun = _begun, _begun + 1
    ledger.training_begins(number)
    return number


def next_number() -> int:
    """The number of the training that the script begins next."""
    return _begun


def have_begun() -> bool:
    """Whether the script has begun a training that is numbered: `fit`, or a `TrainState`."""
    return _begun > 0


def before_next(action: Callable[[], None]) -> None:
    """Has `action` called when the next training begins."""
    _before_next.append(action)


def target(strategy: Any | None, folder: Path, *, on_servers: bool = False) -> Place | None:
    """Where the script's earlier run had come to; None in a first run. A collective, once."""
    if settings().rehearses and not _target:  # what its variables hold comes from the others
        _target.append(Place(call=settings().rehearses_call))
    if not _target:
        durable_checkpoints.fetch_into(folder, rather_disk=on_servers)
        done = snapshot.last_call(folder)
        found = [snapshot.latest(folder), Place(call=done + 1) if done >= 0 else None]
        mine = max((place for place in found if place is not None), default=None)
        _target.append(share_snapshot.latest_place(strategy, mine))
        if _target[0] != found[0]:
            snapshot.forget()
    return _target[0]
