"""Puts in place what workers use instead of Python's own `open`, `os.mkdir` and the like.

Only in a job of several workers, in their own processes, before the script begins.
"""

from __future__ import annotations

import builtins
import bz2
import contextlib
import fcntl
import functools
import io
import mmap
import os
import shutil
import sys
import tarfile
from pathlib import Path
from types import FrameType
from typing import Any

from tfrun.job.settings import settings
from tfrun.job.world import may_stay, place
from tfrun.process.files.folders import DONE, Folders, around_lock
from tfrun.process.files.journal import Journal
from tfrun.process.files.mapped import Mapped
from tfrun.process.files.opening import Opening, with_chief
from tfrun.process.files.versions import Version

# The names by which Python's modules know `open`; others look for it when they open something.
_NAMES: tuple[tuple[Any, str], ...] = (
    (builtins, "open"),
    (io, "open"),
    (tarfile, "bltn_open"),
    (bz2, "_builtin_open"),
)
_installed: list[tuple[Opening, Folders]] = []


def install() -> None:
    """Puts all in place, where several workers run this script."""
    here, mine = place(), settings()
    if here.size < 2 and not may_stay():  # else others may come
        return
    if mine.state_path is None or not mine.task or not mine.state_path.is_dir():
        return
    path = mine.state_path / f"script-files-{here.round}"
    if mine.rehearses:  # that of those whom it joins, who may have begun theirs in an earlier round
        path = max(mine.state_path.glob("script-files-*"), key=_number_of, default=path)
    # A successor may be named after a worker that is there, or has been.
    who = f"{mine.task}-{os.getpid()}" if mine.rehearses else mine.task
    journal = Journal(path, who, is_chief=here.is_chief, with_chief=with_chief(here))
    opening, folders = Opening(journal, who, here.size), Folders(journal, who)
    made = opening.replacement()
    functools.update_wrapper(made, open)
    for module, name in _NAMES:
        setattr(module, name, made)
    for name in DONE:
        original = getattr(os, name)
        setattr(os, name, functools.update_wrapper(folders.around(name, original), original))
    mmap.mmap = Mapped  # type: ignore[misc]
    for name in ("flock", "lockf"):
        original = getattr(fcntl, name)
        setattr(fcntl, name, functools.update_wrapper(around_lock(original), original))
    with contextlib.suppress(AttributeError, KeyError):  # for `savetxt`
        _datasource: Any = sys.modules["numpy.lib._datasource"]
        _datasource._file_openers._file_openers[None] = made
    cleared = folders.around_rmtree(shutil.rmtree)
    shutil.rmtree = functools.update_wrapper(cleared, shutil.rmtree)
    _installed.append((opening, folders))


def moved() -> None:
    """Takes this process's place in another round, which it has stayed for."""
    for opening, _ in _installed:
        opening.moves(place())


def _number_of(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def own_version(path: Any, frame: FrameType | None, mode: str = "w") -> Version | None:
    """What a library is to write instead of `path`; None for `path` itself."""
    return _installed[-1][0].for_library(path, frame, mode) if _installed else None


def left_open(file: Any) -> None:
    """Has a library's file closed at the script's end, if nobody has by then."""
    for opening, _ in _installed:
        opening.left_open(file)


def close_all() -> None:
    """Closes what the script has left open, as the interpreter does at its end."""
    for opening, folders in _installed:
        opening.close_all()
        folders.end()
