"""What the workers of a machine have done with files, each told at once to all.

A file in the job's directory in memory: a line for each deed, and the lock under which they are
added. A worker that is killed leaves its lines; the kernel takes back its lock. It is that of one
round, and of those that follow in place, whose workers may have other places in the job.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tfrun.process.files.rules import Deed, Did


class Journal:
    """This process's view of it. Made before the script, it goes on in the script's forks.

    Attributes:
      task: the worker's name, as long as it lives.
      is_chief: whether it is the chief.
      with_chief: whether the chief is on this machine.
      since: when this was made, in nanoseconds.
    """

    def __init__(self, path: Path, task: str, *, is_chief: bool, with_chief: bool = True) -> None:
        self._path, self.task, self.is_chief = path, task, is_chief
        self._leads = set[str]()  # who has become the chief
        self.with_chief, self.since = with_chief, time.time_ns()
        self._read, self._deeds = 0, dict[str, dict[tuple[Did, str], Deed]]()
        self._counts: dict[tuple[Did, str], int] = {}
        self._last: dict[str, int] = {}  # by path, when this process did anything with it
        self._within = threading.RLock()
        self._file: int | None = None
        # A fork must not find the lock held by a thread that it does not have.
        os.register_at_fork(
            before=self._within.acquire,
            after_in_parent=self._within.release,
            after_in_child=self._within.release,
        )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While it lasts no other worker of the machine adds anything, and all is known.

        Raises:
          OSError: there is no such memory any more.
        """
        with self._within:
            if self._file is not None:  # further out
                yield
                return
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(self._path, flags, 0o600)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX)
                self._catch_up()
                yield
            finally:
                file, self._file = self._file, None
                os.close(file)

    @contextlib.contextmanager
    def held_if_there(self) -> Iterator[bool]:
        """As `held`; yields whether that can be had."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self.held())
            except OSError:
                there = False
            else:
                there = True
            yield there

    def count(self, did: Did, path: str) -> int:
        """How often this process has done it."""
        return self._counts.get((did, path), 0)

    def written(self) -> list[str]:
        """What this process has begun to write, or appended to."""
        return [path for did, path in self._counts if did in (Did.OPENED, Did.APPENDS)]

    def last(self, path: str, *, inside: bool = False) -> int:
        """When this process did anything with a path, or with what is in it; 0 for never."""
        if not inside:
            return self._last.get(path, 0)
        folder = path + os.sep
        found = (at for p, at in self._last.items() if p == path or p.startswith(folder))
        return max(found, default=0)

    def agree(self, path: str, at: int) -> None:
        """What another worker has done counts as done by this one."""
        self._last[path] = max(at, self.last(path))

    def add(self, did: Did, path: str, n: int | None = None) -> Deed:
        """Tells what this worker has done, the next time or the n-th; to be called in `held`.

        Raises:
          OSError: the memory is full, or gone.
        """
        if self._file is None:
            raise FileNotFoundError(self._path)
        n = self._counts.get((did, path), 0) + 1 if n is None else n
        self._counts[did, path] = n
        line = json.dumps([did, path, self.task, n, os.getpid(), self.is_chief]) + "\n"
        os.write(self._file, line.encode())
        self._catch_up()
        self._last[path] = self._read
        if (did, self.task) not in self._deeds.get(path, {}):
            raise OSError(errno.ENOSPC, "only a part of the line was written", str(self._path))
        return self.as_now(self._deeds[path][did, self.task])

    def deeds(self, path: str) -> list[Deed]:
        """All workers' deeds with a path, the newest of each kind and worker."""
        return [self.as_now(deed) for deed in self._deeds.get(path, {}).values()]

    def as_now(self, deed: Deed) -> Deed:
        """A deed as it counts now: what the chief did before it became the chief is the chief's."""
        return replace(deed, is_chief=True) if deed.task in self._leads else deed

    def moves(self, *, is_chief: bool, with_chief: bool) -> bool:
        """Takes note of this worker's place in another round; True where it becomes the chief."""
        leads = is_chief and not self.is_chief
        self.is_chief, self.with_chief = is_chief, with_chief
        if leads:
            with contextlib.suppress(OSError), self.held():
                self.add(Did.LEADS, "")
        return leads

    def tell_once(self, what: str) -> bool:
        """Whether this process is the first of the job on this machine that asks."""
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(self._path.with_name(f"told-{what}"), flags, 0o600))
        except OSError:
            return False
        return True

    def _catch_up(self) -> None:
        assert self._file is not None
        text = b""
        size = os.fstat(self._file).st_size
        while part := os.pread(self._file, size - self._read - len(text), self._read + len(text)):
            text += part
        at, end = self._read, text.rfind(b"\n") + 1
        self._read += end  # at once: garbage that is collected here may be a file to be closed
        for line in text[:end].splitlines(keepends=True):
            at += len(line)
            # Where memory was full for a while, half a line is nobody's.
            with contextlib.suppress(ValueError):
                did, path, task, n, pid, is_chief = json.loads(line)
                deed = Deed(
                    did=Did(did),
                    path=path,
                    task=task,
                    n=n,
                    pid=pid,
                    is_chief=is_chief,
                    at=at,
                )
                self._deeds.setdefault(path, {})[deed.did, task] = deed
                if deed.did is Did.LEADS:
                    self._leads.add(task)
