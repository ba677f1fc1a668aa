"""Decides which state all workers go on from, and gives it to those that do not have it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class Stand(NamedTuple):
    """How far a worker is that has its state in its process.

    Attributes:
      call: the number of its training in the script.
      epoch: of that; -1 where it has no state of it: it is at its beginning, or before that.
      step: of that; without a state what else tells two places of the script from each other.
      began: the epoch has begun, for all callbacks.
      trained: all steps of the epoch are done.
      stayed: it has been in the round before; else it has rehearsed.
      is_whole: its variables hold what those of all others do that are as far.
      first: the first one of its replicas that wait in a step, with what they have computed.
      waits: how many do.
      all_came: all workers of the round before had come to the call that it is in.
      led: it was the chief of the round before.
      levels: it can be taken to where another one is that is further.
      sums: of a loop between two steps, in how many the script has met the others since the newest
        step; -1 in a step, and elsewhere.
      fresh: of a loop between two steps: its script has done nothing there that leads on.
    """

    call: int
    epoch: int = -1
    step: int = 0
    began: bool = False
    trained: bool = False
    stayed: bool = True
    is_whole: bool = True
    first: int = 0
    waits: int = 0
    all_came: bool = True
    led: bool = False
    levels: bool = True
    sums: int = -1
    fresh: bool = False

    @property
    def place(self) -> tuple[int, ...]:
        """What tells which of two is further."""
        return tuple(map(int, self[:5]))

    @property
    def has_just_left(self) -> bool:
        """It has left right after a step, and comes to whatever its script does then."""
        return bool(self.fresh) and self.sums < 0


class Apart(Exception):
    """Workers that stay are in different places of the script, where one cannot join the others.

    Or the chief has gone, and nobody knows whether it had come there: what it alone writes before
    that (`model.save`) would never be written.
    """


class UnfitSuccessor(Exception):
    """One of the workers has prepared for another place than that where the others are."""


def source(stands: Sequence[Stand]) -> int | None:
    """Decides whose state all go on from: a worker's number; None where each has it. Pure.

    Raises:
      Apart, UnfitSuccessor: see there.
    """
    stayed = [stand for stand in stands if stand.stayed]
    newest = max(stayed, key=lambda stand: stand.place)
    are_level = all(stand.place == newest.place and stand.is_whole for stand in stayed)
    has_state = newest.epoch >= 0
    if any(stand.call != newest.call for stand in stayed) or not (are_level or has_state):
        raise Apart
    further = [stand for stand in stayed if not stand.has_just_left] or stayed
    if not any(stand.all_came for stand in further) and not any(stand.led for stand in stayed):
        raise Apart
    if not are_level and not all(stand.levels for stand in stayed):
        raise Apart
    sums = {stand.sums for stand in further}
    if len(sums) > 1 or (len(further) < len(stayed) and not sums <= {-1, 0}):
        raise Apart
    if len(stayed) < len(stands):
        fit = has_state and all(stand.call == newest.call for stand in stands)
        # Who comes has not made what is made again.
        if not (fit and all(stand.sums < 0 or stand.fresh for stand in stayed)):
            raise UnfitSuccessor
    elif are_level:
        return None
    return stands.index(newest)


def level(
    strategy: Any,
    mine: Stand,
    state: Snapshot | None,
    whole: Callable[[], Snapshot],
) -> tuple[Snapshot | None, list[range]]:
    """The state that all go on from, of those that workers hold in their processes; a collective.

    Args:
      strategy: that of the training.
      mine: how far this worker is.
      state: what its variables do not hold of its state.
      whole: all of it.

    Returns:
      `state` where none is further. And of each worker the replicas that wait in the step which
      comes then, by rank.

    Raises:
      Apart, UnfitSuccessor: as of `source`, on all workers.
    """
    rows = _rows(strategy, np.array(mine, np.int64)).tolist()
    stands = [Stand(*row) for row in rows]
    found = source(stands)
    newest = max(stand.place for stand in stands if stand.stayed)
    waiting = [
        range(s.first, s.first + s.waits if s.stayed and s.place == newest else s.first)
        for s in stands
    ]
    if found is None:
        return state, waiting
    place, are_whole = stands[found].place, all(stand.is_whole for stand in stands)
    has = [are_whole and stand.stayed and stand.place == place for stand in stands]
    has[found] = True
    given = _given(strategy, whole, has)
    return state if given is None else given, waiting


def _given(strategy: Any, whole: Callable[[], Snapshot], has: list[bool]) -> Snapshot | None:
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
