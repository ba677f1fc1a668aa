"""One collective after the other, and none after one that has failed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping

from tfrun.collective import stamps
from tfrun.collective.counts import Counts
from tfrun.collective.errors import PeerAbsent, PeerGone, again
from tfrun.collective.links import Link
from tfrun.collective.stamps import stamp


class InTurn:
    """The collectives of one worker, from its first one to the one that fails.

    Args:
      rank: this worker's.
      links: its connections, by rank.

    Attributes:
      counts: what this worker has done.
    """

    def __init__(self, rank: int, links: Mapping[int, Link]) -> None:
        self.rank, self.counts = rank, Counts()
        self._links: dict[int, Link] = {id(link): link for link in links.values()}
        self._calling = threading.Lock()
        self._last: int | None = None  # the last one that all workers come to
        self._absent = ""
        self._over: BaseException | None = None
        self._marks, self._mark = 0, b""

    @property
    def stands(self) -> tuple[int, str, str]:
        """What it does with the others: its number, equal for the same thing, and in words."""
        return self._marks, *stamps.told(self._mark)

    @property
    def sent_bytes(self) -> int:
        """Through this worker's connections, in all."""
        return sum(link.sent for link in self._links.values())

    def abort(self, reason: str) -> None:
        """Makes what runs fail, and all that follows; from any thread."""
        self._end(PeerGone(self.rank, reason))

    def end(self, reason: str) -> None:
        """Makes what runs fail, because the workers have parted, and all that follows.

        From any thread.
        """
        self._end(PeerAbsent(reason))

    def end_after(self, number: int, reason: str) -> None:
        """Makes all collectives fail that come after the `number`-th; from any thread.

        Args:
          number: of the last one that all workers come to.
          reason: why they come to no other.
        """
        self._absent, self._last = reason, number
        if self._calling.locked() and self.counts.collectives > number:
            self.end(reason)

    def close(self) -> None:
        """Ends the connections."""
        # As a new error: an old one holds what was on the stack, and that memory with it.
        self._over = again(self._over or PeerGone(self.rank, "has left"))
        for link in self._links.values():
            link.close()

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """The block is one collective; after one that failed there is no other."""
        with self._calling:
            if self._over is None:
                self.counts.collectives += 1
                if self._last is not None and self.counts.collectives > self._last:
                    self._over = PeerAbsent(self._absent)
            if self._over is not None:
                raise again(self._over)
            try:
                yield
            except BaseException as error:
                ended = self._over
                self._end(error)  # the peers must not wait for what does not come
                if ended is not None and isinstance(error, PeerGone):
                    raise again(ended) from None
                raise

    def _end(self, error: BaseException) -> None:
        """Makes what runs fail, and all that follows: by `error`, unless there was one before."""
        self._over = self._over or error
        for link in self._links.values():
            link.shut()

    def _stamp(self, checksum: int, size: int) -> bytes:
        self._marks += 1
        self._mark = stamp(self.counts.collectives, checksum, size)
        return self._mark
