"""A worker's own version of a file: an inode without a name, until its time has come.

The kernel takes back what has no name when a worker is killed. Where a file system has no such
inodes, they have hidden names beside the file.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tfrun.process.files.journal import Journal
from tfrun.process.files.rules import Deed, Did, Name, takes

KEPT = 16  # files that a worker may go on with: each holds its descriptor and its disk
LONG_SECONDS = 30.0  # who writes text for longer writes a log, which is shown while it grows
_SPECIAL = ("/dev/", "/proc/", "/sys/")
# As they are without folders.py and opening.py.
_replace, _remove, _python_open = os.replace, os.remove, open

_open: weakref.WeakSet[Version] = weakref.WeakSet()  # those of this process
# What was last written under a name. Another worker's may have the name by now, with more in it.
_last = dict[str, int]()


class Inode:
    """Where a version is written.

    Attributes:
      path: the name that it may take; absolute, its folder without symbolic links.
      hidden: the name that it has until then; "" for none.
      fd: open to write and to read.
    """

    def __init__(self, path: str, task: str) -> None:
        """Makes one that is empty.

        Raises:
          OSError: it cannot be, or it could not take the name: `open` knows better what to do.
        """
        self.path, self.hidden = path, ""
        folder = os.path.dirname(path)  # noqa: PTH120
        mode = _mode_of(path, folder)
        try:
            self.fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except OSError:
            self.hidden = hidden_name(path, task)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            self.fd = os.open(self.hidden, flags, 0o666)
        if mode is not None:
            os.fchmod(self.fd, mode)

    def clear_up(self, others: Iterable[Deed]) -> None:
        """Removes what others that were killed have left of this file."""
        opened = [deed for deed in others if self.hidden and deed.did is Did.OPENED]
        left = alive(opened)
        for deed in opened:
            if deed.pid not in left:
                with contextlib.suppress(OSError):
                    _remove(hidden_name(self.path, deed.task))

    def take_name(self) -> None:
        """Replaces what has the name.

        Raises:
          OSError: the disk is full, and the like.
        """
        folder, name = os.path.split(self.path)
        source = self.hidden or f"/proc/self/fd/{self.fd}"
        try:
            where = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # the script has removed the folder, and an open file with it
        try:
            if self.hidden:
                _replace(self.hidden, self.path)
                return
            try:
                # With a folder given, the link is followed to the inode.
                os.link(source, name, dst_dir_fd=where)
            except FileExistsError:
                beside = f".{name[:200]}.{os.getpid()}-{self.fd}"
                os.link(source, beside, dst_dir_fd=where)
                try:
                    _replace(beside, name, src_dir_fd=where, dst_dir_fd=where)
                except OSError:
                    os.unlink(beside, dir_fd=where)
                    raise
        except OSError:  # something that cannot be replaced, only written
            if not stat.S_ISREG(os.fstat(self.fd).st_mode):
                raise
            with Path(source).open("rb") as made, Path(self.path).open("wb") as file:
                shutil.copyfileobj(made, file)
        finally:
            os.close(where)

    def forget(self) -> None:
        """Leaves nothing of it, but for who has it open."""
        if self.hidden:
            with contextlib.suppress(OSError):
                _remove(self.hidden)


def hidden_name(path: str, task: str) -> str:
    """The name that a worker's version of a file has until its time has come."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:200]}.{task.replace(':', '-')}")  # noqa: PTH118


def _mode_of(path: str, folder: str) -> int | None:
    """The permissions of the file that has the name; None for no file.

    Raises:
      OSError: another inode could not take its place unnoticed.
    """
    where = Path(folder).stat()
    if path.startswith(_SPECIAL) and not path.startswith("/dev/shm/"):
        raise OSError(f"{path} may be anything")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(folder)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
    own = found.st_uid == os.geteuid() and found.st_dev == where.st_dev
    if not (plain and own and os.access(path, os.W_OK)):
        raise OSError(f"{path} is to stay the inode that it is")
    return stat.S_IMODE(found.st_mode)


class Version(io.FileIO):
    """The raw file of a version; it takes the name when it is closed, if the rules say so."""

    def __init__(self, name: Any, path: str, mode: str, journal: Journal, task: str) -> None:
        with journal.held():  # what has the name is not looked at while another one takes it
            inode = Inode(path, task)
            try:
                self._mine = journal.add(Did.OPENED, path)
                inode.clear_up(d for d in journal.deeds(path) if d.task != task)
            except OSError:
                os.close(inode.fd)
                inode.forget()
                raise
        self._inode, self._journal = inode, journal
        self._process, self._since = os.getpid(), time.monotonic()
        self._written = self._broken = self._named = False
        self._maps, self._given = 0, name
        self.is_text = self.by_lines = self.begun = self.is_kept = False
        super().__init__(name, mode.replace("t", ""), opener=lambda *_: inode.fd)
        _open.add(self)

    @property
    def mine(self) -> Deed:
        """What this worker has done by opening it."""
        return self._journal.as_now(self._mine)

    def write(self, data: Any, /) -> int | None:
        self._written = True
        try:
            written = super().write(data)
        except OSError:
            self._broken = True  # half of it: the disk is full
            raise
        if self.by_lines or time.monotonic() - self._since > LONG_SECONDS:
            self.show()
        return written

    @property
    def place(self) -> str:
        """A path under which a library opens it that does not take an open file."""
        return self._inode.hidden or f"/proc/self/fd/{self.fileno()}"

    def begin_as(self, source: str) -> None:
        """Begins with what is in another file."""
        with (
            _python_open(source, "rb") as file,
            _python_open(self.fileno(), "wb", closefd=False) as mine,
        ):
            shutil.copyfileobj(file, mine)
        self.begun = True

    def write_in_place(self) -> None:
        """Becomes the file that has the name, as with Python's own `open`.

        For one that is locked: all workers have to lock the same.
        """
        if self._written or self._named or self._process != os.getpid():
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        file = os.open(self._inode.path, flags, 0o666)
        try:
            os.dup2(file, self.fileno(), inheritable=False)
        finally:
            os.close(file)
        self._inode.forget()
        self._named = True

    def show(self) -> None:
        """Takes the name for what there is so far, if the rules say so."""
        if self.is_text and not self._named and not self.closed:
            self.publish(is_whole=False)

    def publish(self, *, is_whole: bool) -> None:
        if self._process != os.getpid():
            return  # a fork of the script's has a copy of this object
        if self._broken and not self._named and not self.mine.is_chief:
            return self._inode.forget()  # the chief's stands as far as it came, as in Python
        path, n = self._inode.path, self.mine.n
        try:
            with self._journal.held_if_there():
                if not self._named and takes(self.mine, self._name(is_whole)):
                    self._inode.take_name()
                    self._named = True
                if self._named:
                    with contextlib.suppress(OSError):  # the others are not told
                        self._journal.add(Did.CLOSED if is_whole else Did.SHOWN, path, n)
        finally:
            if is_whole and not self._named:
                self._inode.forget()

    def _name(self, is_whole: bool) -> Name:
        deeds = self._journal.deeds(self._inode.path)
        return Name(
            exists=os.path.lexists(self._inode.path),
            is_whole=is_whole,
            deeds=deeds,
            alive=alive(d for d in deeds if d.is_chief and d.task != self.mine.task),
            is_foreign=self._is_foreign(deeds),
        )

    def _is_foreign(self, deeds: list[Deed]) -> bool:
        """What machines share has no nameless inodes; and none of this one's has written it."""
        if self._journal.with_chief or not self._inode.hidden:
            return False
        if any(deed.did in (Did.SHOWN, Did.CLOSED) for deed in deeds):
            return False
        try:
            return os.lstat(self._inode.path).st_mtime_ns > self._journal.since
        except OSError:
            return False

    def is_mapped(self) -> None:
        """Has it wait: what is mapped from it is written after it is closed."""
        self._maps += 1
        self.name = self._given  # `np.memmap` tells it

    def is_unmapped(self) -> None:
        """What is mapped from it has been written."""
        self._maps -= 1
        if self.closed and not self._maps:
            self._end_mapped()

    @property
    def waits(self) -> bool:
        """Whether it is closed, and has not taken the name because something is mapped from it."""
        return self.closed and self._maps > 0

    def show_mapped(self) -> None:
        """Takes the name, if it waits: somebody is about to look for it."""
        if self.waits:
            self._maps = 0
            self._end_mapped()

    def opened_again(self, _: str, flags: int) -> int:
        """A descriptor of its inode, as an `opener` gives it."""
        return os.open(f"/proc/self/fd/{self._inode.fd}", flags)

    def stat(self) -> os.stat_result:
        """Of what is written."""
        return os.fstat(self._inode.fd)

    def _end_mapped(self) -> None:
        try:
            self.publish(is_whole=True)
        finally:
            os.close(self._inode.fd)

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._maps:
                self._inode.fd = os.dup(self.fileno())
                return
            self.publish(is_whole=True)
            if self.is_kept:
                forget(self._inode.path)
                if len(_last) >= KEPT:
                    forget(next(iter(_last)))
                _last[self._inode.path] = os.dup(self.fileno())
        finally:
            super().close()


def last(path: str) -> str | None:
    """Where this process finds what it last wrote under a name, and may go on with."""
    return f"/proc/self/fd/{_last[path]}" if path in _last else None


def forget(path: str) -> None:
    """Has nothing gone on with there or in there: the script has removed it, or written another."""
    for known in [known for known in _last if known == path or known.startswith(path + os.sep)]:
        os.close(_last.pop(known))


def alive(deeds: Iterable[Deed]) -> frozenset[int]:
    """The processes of these deeds that have not ended."""
    return frozenset(deed.pid for deed in deeds if _lives(deed.pid))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


def opened_as(file: Any) -> Version | None:
    """The version that an open file, or its descriptor, belongs to."""
    try:
        fd = file if isinstance(file, int) else file.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return next((raw for raw in list(_open) if not raw.closed and raw.fileno() == fd), None)


def show_to_its_writer(path: Callable[[], str]) -> None:
    """Has a path that this process is writing get its name: somebody here is about to look for it.

    Args:
      path: tells which; it is not asked where nothing is being written.
    """
    if not len(_open):
        return
    wanted = path()
    for raw in list(_open):
        if raw.mine.path != wanted:
            continue
        if raw.closed:
            raw.show_mapped()
        else:
            raw.publish(is_whole=False)


def show_mapped() -> None:
    """Has all that is closed and mapped take its name, at the script's end."""
    for raw in list(_open):
        raw.show_mapped()
