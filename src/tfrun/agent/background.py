"""Work that nobody waits for: it is held until it is done, and its failure is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Runs coroutines beside all else.

    Args:
      tell: is given a line on each that has failed. That is a mistake of ours; but somebody waits
        for what was to be done, and would not know why it is not.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._working: set[asyncio.Task[Any]] = set()  # asyncio itself does not hold them

    def run(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begins `work`."""
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._working.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = getattr(task.get_coro(), "__qualname__", "")
            self._tell(f"{what} failed: {type(error).__name__}: {error}")
