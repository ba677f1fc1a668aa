"""Waits for somebody who is not there yet: why not, a line for a person now and then, an end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

SAY_SECONDS = 5.0  # between two lines


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why somebody is not there.

    Attributes:
      text: one clause for a person, without the machine's name.
      permanent: trying again cannot help.
      code: the error's code, when it is permanent.
      fix: what to do then.
    """

    text: str
    permanent: bool = False
    code: str = "TFRUN-301"
    fix: str = ""


class Waiting:
    """Waits for `whom` for `timeout` seconds; `say` shows a person a line."""

    def __init__(self, whom: str, timeout: float, say: Callable[[str], None]) -> None:
        self._whom, self._timeout, self._say = whom, timeout, say
        self._began = self._said = time.monotonic()

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self._began > self._timeout

    def because(self, reason: str) -> None:
        """Takes what keeps it waiting, and tells it when a line is due."""
        now = time.monotonic()
        if now - self._said >= SAY_SECONDS:
            self._said = now
            self._say(f"waiting for {self._whom} ({now - self._began:.0f} s): {reason}")
