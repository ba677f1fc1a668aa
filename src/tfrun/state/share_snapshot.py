"""Decides which state all workers go on from, and gives it to those that do not have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrun.engine.agree import bytes_from, sum_over_workers
from tfrun.job import files
from tfrun.job.world import world
from tfrun.state import no_room, snapshot
from tfrun.state.snapshot import Place, Snapshot


def latest_place(strategy: Any | None, mine: Place | None) -> Place | None:
    """The latest place that any worker has a state of; a collective."""
    if strategy is None:
        return mine
    row = (0, 0, 0) if mine is None else (1 + mine.call, mine.epoch, mine.step)
    calls, epoch, step = max(_rows(strategy, np.array(row, np.int64)).tolist())
    return Place(call=calls - 1, epoch=epoch, step=step) if calls else None


def fetch(strategy: Any | None, path: Path, *, has: bool) -> Snapshot | None:
    """Reads a snapshot that at least one worker has; a collective.

    Workers without it, or with one that is not whole, get the file from the first one that has
    it, and leave it to their successors; if there is no room for it, they have it for themselves.

    A worker `has` it where its file is there and is the right one.
    """
    mine = snapshot.read_file(path) if has else None
    if strategy is None:
        return mine
    having = _rows(strategy, np.array([mine is not None], np.int64))[:, 0]
    if having.all() or not having.any():
        return mine
    is_source = world().rank == int(np.argmax(having))
    blob = _given(strategy, path.read_bytes() if is_source else None)
    if mine is None:
        _leave(path, blob)
        mine = snapshot.parse(blob)
    return mine


def level(
    strategy: Any,
    stand: tuple[int, ...],
    mine: Snapshot | None,
    whole: Callable[[], Snapshot],
    *,
    is_whole: bool,
) -> Snapshot | None:
    """The state that all go on from, of those that workers hold in their processes; a collective.

    Args:
      strategy: that of the training.
      stand: how far this worker is, the number of its training first, then its epoch, below zero
        where it has no state; as long on all.
      mine: what its variables do not hold of its state.
      whole: all of it.
      is_whole: its variables hold what all others' do that are as far.

    Returns:
      `mine` where none is further.

    Raises:
      Apart: they are in different trainings, or at the beginning of one that some cannot begin.
    """
    told = _rows(strategy, np.array((*stand, is_whole), np.int64)).tolist()
    rows = [tuple(row[:-1]) for row in told]
    newest, are_whole = max(rows), all(row[-1] for row in told)
    if are_whole and all(row == newest for row in rows):
        return mine
    if newest[1] < 0 or any(row[0] != newest[0] for row in rows):
        raise Apart
    is_source = world().rank == rows.index(newest)
    blob = _given(strategy, snapshot.data_of(whole()) if is_source else None)
    has_it = is_source or (are_whole and stand == newest)
    return mine if has_it else snapshot.parse(blob)


def _given(strategy: Any, data: bytes | None) -> bytes:
    """What the one worker that has it gives to all; None on the others."""
    length = int(sum_over_workers(strategy, np.array([len(data or b"")], np.int64))[0])
    return bytes_from(strategy, data or b"", length, is_source=data is not None)


class Apart(Exception):
    """Workers that stay are in different trainings of the script."""


def _leave(path: Path, blob: bytes) -> None:
    """Writes the file, whole or not at all."""
    try:
        with files.whole(path) as temporary:
            temporary.write_bytes(blob)
    except OSError as error:
        no_room.say(path.parent, "no snapshot", error)


def _rows(strategy: Any, row: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each worker's row, on every worker, shape [workers, len(row)]."""
    here = world()
    rows = np.zeros((here.size, len(row)), np.int64)
    rows[here.rank] = row
    return sum_over_workers(strategy, rows.ravel()).reshape(rows.shape)
