"""Writes checkpoints in a thread of its own, while training goes on.

At most one waits while another is being written; a newer one takes its place. Nothing here raises
into training: what goes wrong is said through a callback, once, until it works again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfrun.checkpoint.atomic_store import Store
from tfrun.checkpoint.remote_store import RemoteStore
from tfrun.checkpoint.tf_format import CheckpointLayout
from tfrun.job.errors import TfrunError

_SLOW = "slow"
_SLOW_SECONDS = 5.0  # no shorter write is called slow, however often one is due


# What `Store.write` takes.
_Snapshot = tuple[int, Mapping[str, Any], Mapping[str, np.ndarray], CheckpointLayout | None]


class BackgroundWriter:
    """Writes what it is given to a store, in a daemon thread.

    Args:
      store: where to.
      on_problem: called with one line of text when checkpoints are not written, or slowly, and
        when they are again; from the writer's thread or from that of `submit`. It must be quick.
      on_written: called with the step of each checkpoint that is on the disk; it must be quick.
      slow_after: a write that takes longer than this, in seconds, and is still not done when the
        next one is due, is slow.
    """

    def __init__(
        self,
        store: Store | RemoteStore,
        on_problem: Callable[[str], object],
        *,
        on_written: Callable[[int], object] = lambda step: None,
        slow_after: float = _SLOW_SECONDS,
    ) -> None:
        self._store, self._on_written, self._slow_after = store, on_written, slow_after
        self._problems = Problems(on_problem)
        self._changed = threading.Condition()
        self._waiting: _Snapshot | None = None
        self._began: float | None = None  # when the write that is going on began
        self._submitted = self._taken = 0  # how many, and which of them the thread took last
        self._saved = 0  # the last one that is on the disk
        self._problem = ""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tfrun-checkpoint", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """Why the last write did not work; "" when it did."""
        with self._changed:
            return self._problem

    def submit(
        self,
        step: int,
        meta: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        layout: CheckpointLayout | None = None,
    ) -> None:
        """Hands over a snapshot, for `Store.write`; returns at once.

        `meta` and `arrays` are the writer's own from now on: they must not change any more.
        """
        with self._changed:
            assert not self._closed
            self._submitted += 1
            self._waiting = step, meta, arrays, layout
            self._changed.notify_all()
            busy = time.monotonic() - self._began if self._began is not None else 0.0
        if busy > self._slow_after:
            self._problems.slow(busy)

    def flush(self, timeout: float) -> bool:
        """Waits until nothing is left to write, for at most `timeout` seconds.

        Returns whether the last snapshot that was submitted is on the disk.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting is None and self._began is None, timeout=timeout
            )
            return self._submitted == self._saved

    def close(self, timeout: float = 0.0) -> bool:
        """Ends the thread after the write that is going on; returns what `flush` does.

        A blocked storage does not delay it: after `timeout` seconds the thread is left alone, and
        ends with the process.
        """
        done = self.flush(timeout)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        return done

    def _run(self) -> None:
        while snapshot := self._next():
            problem = self._write(snapshot)
            with self._changed:
                self._began, self._problem = None, problem
                if not problem:
                    self._saved = self._taken
                del snapshot  # whoever waits in `flush` can have its memory back
                self._changed.notify_all()

    def _write(self, snapshot: _Snapshot) -> str:
        """Returns what went wrong."""
        began = time.monotonic()
        try:
            self._store.write(*snapshot)
        except TfrunError as error:
            self._problems.failed(error.what, str(error))
            return error.what
        except Exception as error:  # whatever it is, training goes on
            name = type(error).__name__
            self._problems.failed(name, f"{name}: {error}.")
            return f"{name}: {error}"
        slow = time.monotonic() - began > self._slow_after
        self._problems.works(snapshot[0], still_slow=slow)
        self._on_written(snapshot[0])
        return ""

    def _next(self) -> _Snapshot | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closed)
            snapshot, self._waiting = self._waiting, None
            self._taken = self._submitted
            if self._closed:
                return None
            self._began = time.monotonic()
            return snapshot


class Problems:
    """Says each kind of trouble once, until a checkpoint is written again."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._said: set[str] = set()
        self._since = f"since the start of the job ({_clock()})"

    def failed(self, kind: str, text: str) -> None:
        self._once(
            kind, lambda: f"No checkpoint is being saved, {self._since}: {text} Training goes on."
        )

    def slow(self, seconds: float) -> None:
        self._once(
            _SLOW,
            lambda: (
                f"The storage is slow: a checkpoint has taken {seconds:.0f} s so far and the next "
                f"one is due. None has been saved {self._since}. Training goes on."
            ),
        )

    def works(self, step: int, *, still_slow: bool) -> None:
        with self._lock:
            left = self._said & {_SLOW} if still_slow else set()
            if self._said != left:
                self._tell(f"Checkpoints are saved again: step {step:,}.")
            self._said = left
            self._since = f"since step {step:,} ({_clock()})"

    def _once(self, kind: str, text: Callable[[], str]) -> None:
        with self._lock:
            if kind not in self._said:
                self._said.add(kind)
                self._tell(text())

    def _tell(self, text: str) -> None:
        # Training goes on even if there is nobody left to be told.
        with contextlib.suppress(Exception):
            self._say(text)


def _clock() -> str:
    return time.strftime("%H:%M:%S")
