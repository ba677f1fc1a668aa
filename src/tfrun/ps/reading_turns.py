"""Decides who reads the next element of a pipeline: each worker reads its own part, in order."""

from __future__ import annotations

import threading

IDLE_SECONDS = 0.01  # nobody is at work: the turn is for one who may have one


class Turns:
    """The elements of one pass that were begun, and how many more may be.

    An element that a worker has begun and not ended may have been applied on some servers. So it
    comes again, on the same worker when that is back, before the pass is over.

    Args:
      quota: elements of the pass; None to read to the end.
    """

    def __init__(self, workers: int, quota: int | None) -> None:
        self._workers, self._left = workers, quota
        self._begun: set[int] = set()
        self._exhausted: set[int] = set()
        self._moved = threading.Condition()
        self._closed = False

    def take(self, worker: int) -> bool:
        """Whether the worker may read: its element that was begun before, or its next one."""
        with self._moved:
            if worker in self._begun:
                return True
            if self._closed or worker in self._exhausted or self._left == 0:
                return False
            if self._left is not None:
                self._left -= 1
            self._begun.add(worker)
            return True

    def ends(self, worker: int) -> None:
        """The worker's element is applied."""
        with self._moved:
            self._begun.discard(worker)
            self._moved.notify_all()

    def exhausts(self, worker: int) -> None:
        """There was none: the worker's part has ended, the others' may not have."""
        with self._moved:
            self._begun.discard(worker)
            self._exhausted.add(worker)
            if self._left is not None:
                self._left += 1
            self._moved.notify_all()

    def close(self) -> None:
        """Lets no element begin that was not begun before."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()

    def reopen(self) -> None:
        with self._moved:
            self._closed = False

    @property
    def open(self) -> int:
        """Elements that were begun and have not ended."""
        with self._moved:
            return len(self._begun)

    @property
    def over(self) -> bool:
        """Whether nothing is left to read."""
        with self._moved:
            spent = self._left == 0 or len(self._exhausted) >= self._workers
            return spent and not self._begun

    def wait(self, seconds: float) -> None:
        """For a worker without a turn: it must not take the others' turns at full speed."""
        with self._moved:
            self._moved.wait(seconds if self._begun else IDLE_SECONDS)
