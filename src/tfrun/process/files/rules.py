"""Whose version of a file takes its name, where several workers write it. Pure.

All workers run the same script, so that what one writes to a path all write to it, the n-th time
here as the n-th time there. The chief's version of a time stands. Until it does, another worker's
may: its script may read at once what it has written.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Did(str, enum.Enum):
    """What a worker has done with a path."""

    OPENED = "opened"  # to write it anew
    SHOWN = "shown"  # it has taken the name, and is written further
    CLOSED = "closed"  # it has taken the name, and is whole
    APPENDS = "appends"
    MADE = "mkdir"
    REMOVED = "remove"
    CLEARED = "rmtree"
    RENAMED = "rename"
    LEADS = "leads"  # from now on it is the chief: one that stays, where the chief has died


@dataclass(frozen=True, kw_only=True)
class Deed:
    """That a worker has done something for the `n`-th time, from 1, with the same path.

    Attributes:
      task: the worker's name, that no other process of the journal has.
      pid: of its process.
      is_chief: whether it is the chief, or was it when it did this.
      at: its place among all deeds of the machine; the later, the larger.
    """

    did: Did
    path: str
    task: str
    n: int
    pid: int
    is_chief: bool
    at: int = 0


@dataclass(frozen=True, kw_only=True)
class Name:
    """What is known of a path at the moment when a worker's version may take it.

    Attributes:
      exists: there is a file of this name.
      is_whole: the worker has closed its file; else it only wants to show what it has so far.
      deeds: what has been done with the path in this round, the newest of each kind and worker.
      alive: the processes of the chief's among these deeds that have not ended.
      is_foreign: another machine has put the file there in this round, as far as one can tell.
    """

    exists: bool
    is_whole: bool
    deeds: Iterable[Deed]
    alive: frozenset[int]
    is_foreign: bool = False


def takes(mine: Deed, name: Name) -> bool:
    """Whether the worker's file, which it has opened as `mine` says, takes the name."""
    if mine.is_chief:
        return True
    others = [deed for deed in name.deeds if deed.task != mine.task]
    if not name.is_whole and any(deed.did is Did.OPENED for deed in others):
        return False  # whoever is there shows it already, or will
    if not name.exists or name.is_foreign:
        return not name.exists
    if any(deed.did is Did.CLOSED and deed.n > mine.n for deed in others):
        return False  # an earlier one would come back
    return not any(stands(deed, mine.n, name.alive) for deed in others if deed.is_chief)


def stands(deed: Deed, n: int, alive: frozenset[int]) -> bool:
    """Whether the chief has a file under the name that the others' n-th is not to replace.

    One that the chief was killed over is half, and gets no further.
    """
    if deed.n < n:
        return False
    return deed.did is Did.CLOSED or (deed.did is Did.SHOWN and deed.pid in alive)


def is_kept(deeds: Iterable[Deed], task: str, alive: frozenset[int]) -> bool:
    """Whether another worker has begun the file and not removed it yet: it may still read it.

    The last one that removes it does; for the others it is gone when they have said so.
    """
    last: dict[str, Deed] = {}
    for deed in deeds:
        if deed.task != task and deed.at > (last[deed.task].at if deed.task in last else 0):
            last[deed.task] = deed
    writes = (Did.OPENED, Did.SHOWN, Did.CLOSED, Did.APPENDS)
    return any(deed.did in writes and deed.pid in alive for deed in last.values())


def is_left(deeds: Iterable[Deed]) -> bool:
    """Whether somebody has removed the file after all writing, and may have left it to others."""
    at = {True: 0, False: 0}
    for deed in deeds:
        did_remove = deed.did is Did.REMOVED
        at[did_remove] = max(at[did_remove], deed.at)
    return at[True] > at[False]


def has_removed(deeds: Iterable[Deed], task: str) -> bool:
    """Whether a worker has removed the file since it has done anything else with it."""
    own = [deed for deed in deeds if deed.task == task]
    return bool(own) and max(own, key=lambda deed: deed.at).did is Did.REMOVED


def is_done_by_chief(deeds: Iterable[Deed], did: Did, task: str, n: int) -> bool:
    """Whether the chief has done what `task` does now for the n-th time: then its own stands."""
    return any(d.is_chief and d.did is did and d.n >= n and d.task != task for d in deeds)


def newest_of_others(deeds: Iterable[Deed], did: Did, task: str, since: int) -> int:
    """When another worker has last done this, after `since`; 0 for not at all.

    What this worker itself did with the path last was at `since`. Where it now fails for what the
    other has done, the other was quicker, and the script is right.
    """
    found = (deed.at for deed in deeds if deed.did is did and deed.task != task)
    return max((at for at in found if at > since), default=0)


def is_made_by_others(deeds: Iterable[Deed], task: str, n: int) -> bool:
    """Whether another worker has begun this file the n-th time: for `task` it is not there yet."""
    return any(d.task != task and d.did is Did.OPENED and d.n >= n for d in deeds)


def begins_several(deeds: Iterable[Deed]) -> bool:
    """Whether several workers have begun this file anew."""
    return sum(deed.did is Did.OPENED for deed in deeds) > 1


def is_chiefs(deeds: Iterable[Deed]) -> bool:
    """Whether the chief has begun this file anew in this round: then only it appends to it."""
    return any(deed.is_chief and deed.did is Did.OPENED for deed in deeds)


def writes_anew(mode: str) -> bool:
    """Whether a mode of `open` begins a file anew: "w" or "x", not "r+", "a" or nonsense."""
    kinds, rest = [c for c in mode if c in "rwxa"], [c for c in mode if c not in "rwxa"]
    fits = len(kinds) == 1 and set(rest) <= set("bt+") and len(set(rest)) == len(rest)
    return fits and kinds[0] in "wx" and not {"b", "t"} <= set(rest)


def appends(mode: str) -> bool:
    """Whether a mode of `open` is one of the plain ones to append: no "a+", which also reads."""
    return sorted(mode) in (["a"], ["a", "b"], ["a", "t"])


def whole_lines(data: bytes) -> int:
    """How many of these bytes end with the end of a line."""
    return data.rfind(b"\n") + 1


def notice(path: str, size: int, *, of_chief: bool = True) -> str:
    """What a person is told, once in a job, where several workers write one file.

    Args:
      path: as a person writes it.
      size: how many workers the job has.
      of_chief: the chief is one of them.
    """
    whose = "the chief's" if of_chief else "the last one"
    return (
        f"{path} is written by several of the {size} workers, and each writes a whole file: "
        f"{whose} is kept; for one file per worker, put the rank in its name (tfrun.world().rank)"
    )


def doubt(path: str, size: int) -> str:
    """The warning about a file that several workers append to."""
    return (
        f"several of the {size} workers append to {path}: it gets each line once from each of "
        'them; open it with "w" first, or append only if tfrun.world().is_chief, or to one file '
        "per rank"
    )
