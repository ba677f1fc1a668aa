"""The block at the bottom of the terminal while a job runs; output scrolls above it."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tfrun.observe.status_board import board

SECONDS = 0.5  # between two looks at the job
MOST_WORKERS = 8
EVENTS = 3
ABOVE = 3

GetStatus = Callable[[], Mapping[str, Any]]


def is_possible() -> bool:
    """Whether standard error is a terminal that can redraw lines."""
    try:
        terminal = sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False
    return terminal and os.environ.get("TERM", "") not in ("", "dumb")


class Screen:
    """The block, and what scrolls above it. One thread uses it."""

    def __init__(self, status: GetStatus) -> None:
        """`status` gives the job's status (`JobView.to_json`)."""
        self._status, self._drawn = status, time.monotonic()
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,  # what is left of it is the summary
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self._console.show_cursor(True)  # a launcher that is killed leaves it as it was

    def show(self, file: TextIO, text: str) -> None:
        """Shows whole lines above the block; what goes to a file or pipe goes there."""
        if not file.isatty():
            file.write(text)
            file.flush()
            return
        self._console.print(Text.from_ansi(text.removesuffix("\n")), soft_wrap=True)

    def refresh(self) -> None:
        """Draws the block anew when it is time."""
        now = time.monotonic()
        if now - self._drawn >= SECONDS:
            self._drawn = now
            try:
                # What scrolls above it keeps some lines, in a low terminal too.
                high = max(1, self._console.height - ABOVE)
                shown = board(self._status(), events=EVENTS, workers=MOST_WORKERS, height=high)
            except Exception:  # a mistake of ours must not cost the user's output
                self._drawn = math.inf
            else:
                self._live.update(shown, refresh=True)

    def close(self) -> None:
        """Takes the block away."""
        self._live.stop()
