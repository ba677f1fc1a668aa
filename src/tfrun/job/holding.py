"""Who holds which replicas now: `replicas.held` says it, until `--balance auto` moves some."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tfrun.job.replicas import held
from tfrun.job.settings import settings
from tfrun.job.world import world

moves = 0  # how often replicas have moved in this process
_counts: tuple[int, ...] = ()
_decide: list[Callable[[], None]] = []


def blocks() -> tuple[range, ...]:
    """The replicas of each worker, by rank."""
    here = world()
    if not _counts:
        return held(here.replicas, here.size)
    ends = itertools.accumulate(_counts)
    return tuple(range(end - count, end) for count, end in zip(_counts, ends, strict=True))


def own() -> range:
    """Those of this worker."""
    return blocks()[world().rank]


def may_move() -> bool:
    """Whether workers of this job give replicas to each other."""
    here = world()
    return settings().balance == "auto" and 1 < here.size < here.replicas


def move(counts: Sequence[int]) -> None:
    """From now on each worker holds so many, by rank; all call this between the same two steps."""
    global moves, _counts
    moves, _counts = moves + 1, tuple(counts)


def begin_anew() -> None:
    """A round begins in this process: the replicas are divided evenly among its workers."""
    global moves, _counts
    moves, _counts = moves + 1, ()


def arrange(decide: Callable[[], None]) -> None:
    """Has `between_steps` call `decide`, which may `move` replicas."""
    _decide[:] = [decide]


def between_steps() -> None:
    """Called where callbacks have seen a training step, and nothing of the next one is read."""
    for decide in _decide:
        decide()
