"""Finds out, again and again, whom the workers' start still waits for, and tells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from tfrun.cluster import start_order
from tfrun.cluster.address import parse_address


class StartWatch:
    """Watches one worker's start."""

    def __init__(self, called: str, peers: Sequence[Sequence[str]]) -> None:
        """Args:
        called: the worker's name in its cluster.
        peers: (task, address) of each that it waits for.
        """
        self.called, where = called, "the cluster"
        self._peers = [(task, parse_address(text, where=where)) for task, text in peers]
        self._began: float | None = None
        self._last: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self._reasons: dict[str, str] = {}

    def end(self) -> str:
        """Looks no more, and returns who was not reached and why, to be added to a sentence."""
        if self._looking:
            self._looking.cancel()
        return f" ({start_order.listed(self._reasons)})" if self._reasons else ""

    def look(self, since: float, tell: Callable[[str], None]) -> None:
        """Looks at the peers' ports when it is time to, and tells a person.

        Args:
          since: when it began to wait, in monotonic seconds.
          tell: shows a line.
        """
        if since != self._began:
            self._began, self._last, self._reasons = since, None, {}
        seconds = time.monotonic() - since
        is_busy = self._looking is not None and not self._looking.done()
        if self._peers and not is_busy and start_order.is_due(seconds, self._last):
            self._last = seconds
            self._looking = asyncio.create_task(self._look(since, tell))

    async def _look(self, since: float, tell: Callable[[str], None]) -> None:
        self._reasons = await start_order.missing(self._peers)
        seconds = time.monotonic() - since
        if text := start_order.sentence(self.called, seconds, len(self._peers), self._reasons):
            tell(text)
