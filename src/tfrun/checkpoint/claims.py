"""Tracks which agents may still write a state to a directory of checkpoints: each holds a claim.

An agent that has lost its launcher saves what its machine's memory holds before it ends. The same
command, started again meanwhile, waits for that: it would begin with an older state otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tfrun.job.lock import WriterLock, say_who, who_holds
from tfrun.job.timeouts import Timeouts

SAVE_SECONDS = 30.0  # from the end of the last worker to a checkpoint that is whole
PREFIX = ".agent-"


class Claim:
    """One agent's claim, from its first round to its end; the kernel ends it with the process."""

    def __init__(self, directory: Path, agent: str) -> None:
        """Args:
        directory: the checkpoints', which may not be there yet.
        agent: the agent's name, one of its own on each machine.
        """
        self._path = directory / f"{PREFIX}{agent}"
        self._lock = WriterLock(self._path)
        self._inode = 0

    def acquire(self) -> bool:
        """Returns False as long as an agent of this name, of a job before, has not ended.

        Raises:
          OSError: the directory cannot be made or written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._lock.acquire():
            return False
        say_who(self._path)
        self._inode = self._inode_there()
        return True

    @property
    def holds(self) -> bool:
        """False without one, and when the directory was put aside or removed since it was made."""
        return self._inode != 0 and self._inode_there() == self._inode

    def holders(self) -> list[str]:
        """Who is waited for, for people."""
        return held_by(self._path.parent)

    def release(self) -> None:
        if self.holds:
            with contextlib.suppress(OSError):
                self._path.unlink()
        self._inode = 0
        self._lock.release()

    def _inode_there(self) -> int:
        try:
            return self._path.lstat().st_ino
        except OSError:
            return 0


def held_by(directory: Path) -> list[str]:
    """Returns who holds claims on a directory, in words: "the agent n1, process 12 on n1"."""
    found = []
    for path in sorted(directory.glob(f"{PREFIX}*")):
        lock = WriterLock(path)
        try:
            is_free = lock.acquire()
        except OSError:
            continue
        if is_free:
            lock.release()
            continue
        agent, holder = path.name.removeprefix(PREFIX), who_holds(path)
        found.append(f"the agent {agent}, {holder}" if holder else f"the agent {agent}")
    return found


def longest_wait(timeouts: Timeouts) -> float:
    """Returns for how many seconds an agent that has lost its launcher may still be there."""
    return timeouts.launcher_timeout + timeouts.leave_grace + SAVE_SECONDS


def told(holders: Sequence[str], timeouts: Timeouts) -> str:
    """Returns what a person is told who waits for these to end."""
    who = " and ".join(holders[:2]) or "an agent"
    more = f" and {len(holders) - 2} more" if len(holders) > 2 else ""
    return (
        f"{who}{more}, of the previous job, still saves its state to the checkpoints here: this "
        f"job waits for that, at most {longest_wait(timeouts):.0f} s"
    )
