"""What the second worker finds done already: folders made, files removed or renamed.

A script for one process makes its folder without `exist_ok`; the second worker would fail. An error
that says no more than that another worker was quicker is none.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfrun.process.files.callers import Caller, caller
from tfrun.process.files.journal import Journal
from tfrun.process.files.opening import key_of
from tfrun.process.files.rules import (
    Did,
    is_done_by_chief,
    is_kept,
    is_left,
    newest_of_others,
)
from tfrun.process.files.versions import alive, forget, opened_as, show_to_its_writer

# What they do, and the error of the one who comes second.
DONE: dict[str, tuple[Did, type[OSError]]] = {
    "mkdir": (Did.MADE, FileExistsError),
    "remove": (Did.REMOVED, FileNotFoundError),
    "unlink": (Did.REMOVED, FileNotFoundError),
    "rmdir": (Did.REMOVED, FileNotFoundError),
    "rename": (Did.RENAMED, FileNotFoundError),
    "replace": (Did.RENAMED, FileNotFoundError),
}


_remove = os.remove  # as it is without this


class Folders:
    """Does such things for one worker.

    Args:
      journal: what the machine's workers have done.
      task: its name in the job.
    """

    def __init__(self, journal: Journal, task: str) -> None:
        self._journal, self._task = journal, task
        self._clears = False

    def around(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """What takes the place of the function of `os` with this name."""
        did, late = DONE[name]

        def function(*args, **kwargs):
            paths = args[: 2 if did is Did.RENAMED else 1]
            key = self._key(paths, kwargs, sys._getframe(1))
            if not key:
                return original(*args, **kwargs)
            show_to_its_writer(lambda: key_of(args[0]))
            if did is not Did.MADE:
                for path in paths:
                    forget(key_of(path))
            with self._journal.held_if_there() as knows:
                if knows and self._is_left_to_others(did, key, paths):
                    return self._add(did, key)
                try:
                    result = original(*args, **kwargs)
                except late:
                    at = self._done_by_others(did, key) if knows else 0
                    if not at or (did is Did.MADE and not Path(args[0]).is_dir()):
                        raise
                    self._journal.agree(key, at)
                    result = None
                else:
                    self._add(did, key)
                if did is Did.RENAMED or (result is None and self._journal.count(Did.OPENED, key)):
                    self._drop(key_of(paths[0]))
            return result

        return function

    def end(self) -> None:
        """At the script's end: what this worker has written, others may have had to leave to it."""
        with self._journal.held_if_there() as knows:
            for path in self._journal.written() if knows else ():
                if is_left(self._journal.deeds(path)):
                    self._drop(path)

    def _is_left_to_others(self, did: Did, key: str, paths: tuple[Any, ...]) -> bool:
        """Whether this is not to be done here, because others still read, or have a newer one."""
        if did is Did.REMOVED:
            return self._is_kept(key) and os.path.lexists(paths[0])
        if did is not Did.RENAMED:
            return False
        n = self._journal.count(did, key) + 1
        if not is_done_by_chief(self._journal.deeds(key), did, self._task, n):
            return False
        is_left = os.path.lexists(paths[0]) and os.path.lexists(paths[1])
        if is_left:
            self._drop(key_of(paths[0]))
        return is_left

    def _drop(self, path: str) -> None:
        """This worker has removed, or moved away, what it wrote there; the last one really does."""
        self._add(Did.REMOVED, path)
        if not self._is_kept(path):
            with contextlib.suppress(OSError):
                _remove(path)

    def around_rmtree(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What takes the place of `shutil.rmtree`: one worker does it, before the others go on."""

        def rmtree(*args, **kwargs):
            key = self._key(args[:1], kwargs, sys._getframe(1))
            if not key:
                return original(*args, **kwargs)
            forget(key)
            with self._journal.held_if_there() as knows:
                if knows and (at := self._done_by_others(Did.CLEARED, key, inside=True)):
                    return self._journal.agree(key, at)
                if knows and self._done_by_others(Did.MADE, key, inside=True):
                    return None  # it is a new one, not what the script means
                self._clears = True
                try:
                    result = original(*args, **kwargs)
                finally:
                    self._clears = False
                self._add(Did.CLEARED, key)
            return result

        return rmtree

    def _key(self, paths: tuple[Any, ...], kwargs: dict[str, Any], frame: Any) -> str:
        """As what the others know it; "" for what is none of the script's own calls on paths."""
        given = any(kwargs.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd"))
        if self._clears or given or caller(frame) is not Caller.SCRIPT:
            return ""
        keys = [key_of(os.fspath(path).rstrip("/")) if _is_text(path) else "" for path in paths]
        return " -> ".join(keys) if keys and all(keys) else ""

    def _is_kept(self, key: str) -> bool:
        deeds = self._journal.deeds(key)
        return is_kept(deeds, self._task, alive(deeds))

    def _done_by_others(self, did: Did, key: str, *, inside: bool = False) -> int:
        since = self._journal.last(key, inside=inside)
        return newest_of_others(self._journal.deeds(key), did, self._task, since)

    def _add(self, did: Did, key: str) -> None:
        with contextlib.suppress(OSError):  # the memory is full: the others are not told
            self._journal.add(did, key)


def around_lock(original: Callable[..., Any]) -> Callable[..., Any]:
    """What takes the place of `fcntl.flock` and `lockf`: all workers lock the same file."""

    def lock(fd, *args, **kwargs):
        if raw := opened_as(fd):
            raw.write_in_place()
        return original(fd, *args, **kwargs)

    return lock


def _is_text(path: Any) -> bool:
    return isinstance(path, str | os.PathLike) and isinstance(os.fspath(path), str)
