"""`open`, as several workers use it: what a script writes anew is a version of the worker's own.

Reading, and whatever is no regular file or would become another one unnoticed, is Python's own
`open` as before.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tfrun.job import reports
from tfrun.job.world import World
from tfrun.process import channel
from tfrun.process.files.callers import Caller, caller
from tfrun.process.files.journal import Journal
from tfrun.process.files.mapped import begun, goes_on, reads, with_its_head
from tfrun.process.files.rules import (
    Did,
    appends,
    begins_several,
    doubt,
    has_removed,
    is_chiefs,
    is_made_by_others,
    notice,
    writes_anew,
)
from tfrun.process.files.text import Lines, Text
from tfrun.process.files.versions import Version, last, show_mapped, show_to_its_writer

CODE = "TFRUN-516"  # several workers append to one file

_open = io.open
_whole: weakref.WeakSet[Any] = (
    weakref.WeakSet()
)  # what `open` has returned, to be closed at the end


def key_of(path: Any) -> str:
    """The same absolute path for the same name, however it was written; "" for no path."""
    if not isinstance(path, str | os.PathLike):
        return ""  # a descriptor, bytes
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        return ""
    folder, name = os.path.split(text)
    return os.path.join(os.path.realpath(folder), name) if name not in ("", ".", "..") else ""  # noqa: PTH118


def with_chief(here: World) -> bool:
    """Whether the chief is on this machine: ranks go through the machines one by one."""
    return here.is_chief or here.rank == here.local_rank


class Opening:
    """Opens files for one worker.

    Args:
      journal: what the machine's workers have done.
      task: its name in the job.
      size: how many workers the job has.
    """

    def __init__(self, journal: Journal, task: str, size: int) -> None:
        self._journal, self._task, self._size = journal, task, size
        self._kept: weakref.WeakSet[Lines] = weakref.WeakSet()

    def moves(self, here: World) -> None:
        """Takes this worker's place in another round, where it stays: it may be the chief there."""
        if self._journal.moves(is_chief=here.is_chief, with_chief=with_chief(here)):
            for lines in list(self._kept):
                with contextlib.suppress(OSError):
                    lines.lead()
        self._size = here.size

    def replacement(self) -> Callable[..., Any]:
        """What takes the place of `builtins.open`."""

        def open(
            file,
            mode="r",
            buffering=-1,
            encoding=None,
            errors=None,
            newline=None,
            closefd=True,
            opener=None,
        ):
            made = None
            if isinstance(mode, str) and not {"w", "x", "a"}.isdisjoint(mode):
                who = caller(sys._getframe(1))
                if opener is None and closefd and who is not Caller.OURS:
                    made = self._written(file, mode, buffering, encoding, errors, newline)
                    raw = getattr(made, "raw", None)
                    if who is Caller.LIBRARY and isinstance(raw, Version):
                        raw.name = raw.place  # pandas has others open the file by its name
                        begun(raw, sys._getframe(1))
            elif opener is None and (mine := goes_on(lambda: key_of(file), mode)):
                opener = mine.opened_again
            elif opener is None and (of := with_its_head(lambda: key_of(file), sys._getframe(1))):
                opener = of
            else:
                show_to_its_writer(lambda: key_of(file))
            if made is not None:
                return made
            made = _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
            if mode == "rb":
                reads(lambda: key_of(file), made, sys._getframe(1))
            return made

        return open

    def for_library(self, path: Any, frame: FrameType | None, mode: str = "w") -> Version | None:
        """A worker's own version of a file that a library writes without Python's `open`.

        Args:
          path: as the script has named it.
          frame: the call that it comes from.
          mode: "w" or "x"; "a" or "r+" for one that begins as what there is.
        """
        key = key_of(path)
        if not key or caller(frame) is Caller.OURS:
            return None
        try:
            source = self._source(key) if mode in ("a", "r+") else None
            if mode == "r+" and source is None:
                return None
            made = self._version(path, key, "x+b" if mode == "x" else "w+b")
            if made is not None and source is not None:
                made.begin_as(source)
            return made
        except OSError:
            return None

    def _source(self, key: str) -> str | None:
        """What this worker finds under a name: what it wrote there, or else what is there."""
        if mine := last(key):
            return mine
        begun = self._journal.count(Did.OPENED, key)
        is_new = self._has_removed(key) if begun else self._is_new(key)
        return key if os.path.lexists(key) and not is_new else None

    def left_open(self, file: Any) -> None:
        """Has a file closed at the script's end."""
        _whole.add(file)

    def close_all(self) -> None:
        """What the script has left open is closed, as when Python ends; mapped files as well."""
        for file in list(_whole):
            try:
                file.close()
            except (OSError, ValueError) as error:
                sys.excepthook(type(error), error, error.__traceback__)
        show_mapped()
        with self._journal.held_if_there() as knows:
            # Before this, the chief may come and write them too; elsewhere it is on another disk.
            for path in self._journal.written() if knows and self._journal.with_chief else ():
                deeds = self._journal.deeds(path)
                if begins_several(deeds) and not is_chiefs(deeds):
                    self._tell(path, of_chief=False)

    def _written(
        self,
        file: Any,
        mode: str,
        buffering: int,
        encoding: str | None,
        errors: str | None,
        newline: str | None,
    ) -> Any | None:
        """A file of this worker's own; None where Python's `open` is right."""
        is_text = "b" not in mode
        if buffering == (0 if is_text else 1) or not isinstance(buffering, int):
            return None
        if not is_text and (encoding, errors, newline) != (None, None, None):
            return None
        try:
            path = key_of(file)
            raw = path and (
                self._version(file, path, mode)
                if writes_anew(mode)
                else self._lines(file, path, mode)
            )
        except OSError:
            return None
        if not raw:
            return None
        if isinstance(raw, Version):
            raw.is_text, raw.by_lines = is_text, buffering == 1
        found: Any = raw
        try:
            if buffering != 0:
                made = io.BufferedRandom if "+" in mode else io.BufferedWriter
                size = buffering if buffering > 1 else _block_size(raw)
                found = made(raw, size)  # type: ignore[arg-type]
            if is_text:
                found = Text(raw, found, encoding, errors, newline, buffering == 1)
                found.mode = mode
        except BaseException:
            found.close()
            raise
        _whole.add(found)
        return found

    def _version(self, file: Any, path: str, mode: str) -> Version | None:
        if "x" in mode and os.path.lexists(path) and not self._is_new(path):
            return None  # Python's own says that it exists
        raw = Version(file, path, mode, self._journal, self._task)
        deeds = self._journal.deeds(path)
        if is_chiefs(deeds) and begins_several(deeds):
            self._tell(path)
        return raw

    def _tell(self, path: str, *, of_chief: bool = True) -> None:
        if channel.is_open() and self._journal.tell_once("written"):
            text = notice(_shown(path), self._size, of_chief=of_chief)
            channel.emit(reports.WorkerNotice(text=text))

    def _is_new(self, path: str) -> bool:
        """Whether what is there is of others: they have been quicker, or still read it."""
        with self._journal.held():
            n = self._journal.count(Did.OPENED, path) + 1
            is_others = is_made_by_others(self._journal.deeds(path), self._task, n)
        return is_others or self._has_removed(path)

    def _has_removed(self, path: str) -> bool:
        return has_removed(self._journal.deeds(path), self._task)

    def _lines(self, file: Any, path: str, mode: str) -> Lines | None:
        """What is appended to a file that the chief has begun is the chief's alone."""
        if not appends(mode) or not (path and _is_plain(path)):
            return None
        with self._journal.held():
            if not self._journal.count(Did.APPENDS, path):
                self._journal.add(Did.APPENDS, path)
            deeds = self._journal.deeds(path)
        own = [deed for deed in deeds if deed.task == self._task]
        if is_chiefs(deeds) and not any(deed.is_chief for deed in own):
            flags = os.O_RDWR | os.O_CLOEXEC
            lines = Lines(file, "a", opener=lambda *_: os.open(os.devnull, flags))
            lines.kept_from = path
            self._kept.add(lines)
            return lines
        several = len({deed.task for deed in deeds if deed.did is Did.APPENDS}) > 1
        begun = any(deed.did is Did.OPENED for deed in deeds)
        if several and not begun and channel.is_open() and self._journal.tell_once("appended"):
            text = doubt(_shown(path), self._size)
            channel.emit(reports.DoubtRaised(code=CODE, text=text, alone=True))
        return Lines(file, "a")


def _is_plain(path: str) -> bool:
    return Path(path).is_file() or not os.path.lexists(path)


def _block_size(raw: io.FileIO) -> int:
    size = getattr(raw, "_blksize", 0)
    return size if size > 1 else io.DEFAULT_BUFFER_SIZE


def _shown(path: str) -> str:
    try:
        return os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path  # noqa: PTH109
    except OSError:
        return path
