"""Reports what cannot be saved, and since when: once for each kind of trouble until it is over."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

_SLOW = "slow"


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
