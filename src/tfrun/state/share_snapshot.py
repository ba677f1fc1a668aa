"""Decides which state all workers go on from, and gives it to those that do not have it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrun.checkpoint.side_files import as_plain, as_they_were
from tfrun.collective.handing_on import neighbours
from tfrun.engine.agree import bytes_given, give, sum_over_workers
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
    blob = bytes_given(strategy, path.read_bytes() if mine else None, having.astype(bool).tolist())
    if mine is None:
        _leave(path, blob)
        mine = snapshot.parse(blob)
    return mine


def level(
    strategy: Any,
    stand: tuple[int, ...],
    mine: Snapshot | None,
    whole: Callable[[], Snapshot | None],
) -> Snapshot | None:
    """The state that all go on from, of those that workers hold in their processes; a collective.

    Args:
      strategy: that of the training.
      stand: how far this worker is, the number of its training first; as long on all.
      mine: what its variables do not hold of its state.
      whole: all of it.

    Returns:
      `mine` where none is further.

    Raises:
      Apart: they are in different trainings.
    """
    rows = [tuple(row) for row in _rows(strategy, np.array(stand, np.int64)).tolist()]
    newest = max(rows)
    if all(row == newest for row in rows):
        return mine
    if any(row[0] != newest[0] for row in rows):
        raise Apart
    found = _given(strategy, whole, [row == newest for row in rows])
    return mine if found is None else found


def _given(strategy: Any, whole: Callable[[], Snapshot | None], has: list[bool]) -> Snapshot | None:
    """The state that some workers hold, on one that lacks it, straight from their memory.

    Args:
      strategy: that of the training.
      whole: the state, where this worker holds it.
      has: whether each worker does, by rank.
    """
    here = world().rank
    header, arrays = b"", {}
    if has[here] and neighbours(here, has)[1]:  # else nobody asks for its own
        kept = whole()
        assert kept is not None
        arrays, dtypes = as_plain(kept.arrays)
        kinds = [[name, array.dtype.name, array.shape] for name, array in arrays.items()]
        header = json.dumps({**kept.meta, "arrays": kinds, "dtypes": dtypes}).encode()
    header = bytes_given(strategy, header, has)
    if not has[here]:
        meta = json.loads(header)
        arrays = {name: np.empty(shape, dtype) for name, dtype, shape in meta["arrays"]}
        give(strategy, list(arrays.values()), has)
        return Snapshot.of(meta, as_they_were(arrays, meta["dtypes"]))
    give(strategy, list(arrays.values()), has)
    return None


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
