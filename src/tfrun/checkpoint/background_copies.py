"""Copies files to a slow place in a thread of its own, so that training does not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from tfrun.job.errors import TfrunError


class BackgroundCopies:
    """Copies the files that it is given, one after the other, in a daemon thread.

    Args:
      copy: copies one; it raises TfrunError or OSError.
      on_problem: called with the file and what went wrong, from the thread; it must be quick.
    """

    def __init__(
        self, copy: Callable[[Path], object], on_problem: Callable[[Path, str], object]
    ) -> None:
        self._copy, self._on_problem = copy, on_problem
        self._changed = threading.Condition()
        self._waiting: list[Path] = []
        self._failed: dict[Path, str] = {}
        self._is_busy = False
        self._thread: threading.Thread | None = None

    def submit(self, path: Path) -> None:
        """Has a file copied; returns at once."""
        with self._changed:
            self._failed.pop(path, None)
            if path not in self._waiting:
                self._waiting.append(path)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tfrun copies", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def again(self, seconds: float) -> str:
        """Tries again what has failed, and waits for all; returns what fails still."""
        for path in tuple(self._failed):
            self.submit(path)
        return self.flush(seconds)

    def flush(self, seconds: float) -> str:
        """Waits until all is copied, so many seconds at most; returns what has failed."""
        until = time.monotonic() + seconds
        with self._changed:
            while self._waiting or self._is_busy:
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    return f"the storage takes more than {seconds:.0f} s"
            return next(iter(self._failed.values()), "")

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                path, self._is_busy = self._waiting.pop(0), True
            problem = ""
            try:
                self._copy(path)
            except TfrunError as error:
                problem = error.what
            except Exception as error:  # whatever it is, training goes on
                problem = f"{type(error).__name__}: {error}"
            problem = problem if path.exists() else ""  # nobody wants it any more
            if problem:
                self._on_problem(path, problem)
            with self._changed:
                self._is_busy = False
                if problem:
                    self._failed[path] = problem
                self._changed.notify_all()
