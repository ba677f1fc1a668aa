"""Numbers a script's trainings, and knows how far its earlier run had come in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfrun.data.ledger import writer as ledger
from tfrun.engine.agree import any_worker
from tfrun.state import durable_checkpoints, finished_calls, leaving, share_snapshot, snapshot
from tfrun.state.snapshot import Place

_numbers = itertools.count()
_begun: list[int] = []
_target: list[Place | None] = []
_before_next: list[Callable[[], None]] = []


def begin() -> int:
    """The number of a training that begins: the script's run after this one counts the same."""
    while _before_next:
        _before_next.pop()()
    number = next(_numbers)
    _begun.append(number)
    ledger.training_begins(number)
    return number


def have_begun() -> bool:
    """Whether the script has begun a training that is numbered: `fit`, or a `TrainState`."""
    return bool(_begun)


def before_next(action: Callable[[], None]) -> None:
    """Has `action` called when the next training begins."""
    _before_next.append(action)


def target(strategy: Any | None, folder: Path, *, on_servers: bool = False) -> Place | None:
    """Where the script's earlier run had come to; None in a first run. A collective, once.

    Args:
      strategy: the multi-worker strategy; None for one worker alone.
      folder: this machine's snapshots.
      on_servers: the state is on parameter servers, and only checkpoints keep it.
    """
    if not _target:
        durable_checkpoints.fetch_into(folder, rather_disk=on_servers)
        done = finished_calls.last(folder)
        found = [snapshot.latest(folder), Place(call=done + 1) if done >= 0 else None]
        mine = max((place for place in found if place is not None), default=None)
        _target.append(share_snapshot.latest_place(strategy, mine))
        if _target[0] != found[0]:
            snapshot.forget()
    return _target[0]


def passed_by(number: int, step: int, strategy: Any | None, folder: Path) -> None:
    """A training that is done has been passed by, `step` steps of it. A collective, of all workers.

    When nothing is kept of what came after it, that may be the end of the script: a person has to
    see it, even if some lines come twice.
    """
    place = target(strategy, folder)
    if place is None or place != Place(call=number + 1):
        return
    has = snapshot.path_of(folder, place).exists()
    if strategy is not None:
        (has,) = any_worker(strategy, [has])
    if not has:
        leaving.say_resumed(place, step)
