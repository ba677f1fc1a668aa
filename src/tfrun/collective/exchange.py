"""Sums what is large: each member sends to all others and hears from all of them at once.

The numbers are cut into as many slices as there are members. Each member is sent its slice by all
others, adds it up block by block, and sends the sums to all as soon as they are there. One sends
2 (n - 1) / n of the bytes, which is the least there is (Patarasuk and Yuan 2009). Every number is
added up by one member, so all get the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.buffers import Buffers
from tfrun.collective.duplex_transfer import SEND_BYTES, Own
from tfrun.collective.links import Link, Patience
from tfrun.collective.stamps import agree

# Writes the sums, from a number on, of what this member has and of what has come from each of the
# others, in their order.
Add = Callable[[NDArray, int, Sequence[NDArray]], None]
BLOCK_BYTES = 512 << 10  # are added up at once: what has come is still in a cache
AHEAD = 2  # blocks that may have come of one member and not yet of others


class Exchange:
    """Large sums of members that are all connected with each other.

    Args:
      me: this member's position.
      links: connections by position, to all others.
      count: how many members.
      patience: how long a silent one is waited for.
    """

    def __init__(self, me: int, links: Mapping[int, Link], count: int, patience: Patience) -> None:
        self._me, self._links, self._count, self._patience = me, links, count, patience
        self.others = [(me - step) % count for step in range(1, count)]
        self._buffers = Buffers()
        self._added = 0  # numbers of the own slice

    def run(
        self, out: NDArray, owns: Sequence[Own], counts: Sequence[int], add: Add, stamp: bytes
    ) -> None:
        """Sums `owns` and, from each other member, as many as `counts` says.

        Args:
          out: one-dimensional, contiguous, equal in size and dtype on all; gets the sums.
          owns: this member's numbers.
          counts: how many such numbers each member has.
          add: adds up; what comes is in the order of `others`.
          stamp: says which collective this is.

        Raises:
          PeerGone, Disagreement: as `Flat.gather`; what is in `out` is worth nothing then.
        """
        bounds = [len(out) * i // self._count for i in range(self._count + 1)]
        slices = [out[begin:end] for begin, end in itertools.pairwise(bounds)]
        self.sum_owned(slices[self._me], bounds, owns, counts, add, stamp, slices)

    def give_owned(
        self, theirs: Sequence[NDArray], own: Own, begin: int, end: int, stamp: bytes
    ) -> None:
        """Gives each member's slice to all.

        Args:
          theirs: gets the slice of each, by position; this member's own is passed over.
          own: this member's numbers.
          begin: where its slice begins.
          end: where it ends.
          stamp: as of `run`.
        """
        dtype = theirs[self._me].dtype
        nothing = np.empty((0, 0), dtype)
        size = max(1, min(BLOCK_BYTES // dtype.itemsize, end - begin))
        scratches = self._buffers.array((len(self.others), size), dtype)
        peers = [
            _Peer(
                self._links[other],
                stamp,
                _parts([own], begin, end, scratch),
                nothing.reshape(-1),
                nothing,
                0,
                theirs[other],
                tells=False,
            )
            for other, scratch in zip(self.others, scratches, strict=True)
        ]
        self._added = 0
        self._move(peers, lambda: False)

    def sum_owned(
        self,
        mine: NDArray,
        bounds: Sequence[int],
        owns: Sequence[Own],
        counts: Sequence[int],
        add: Add,
        stamp: bytes,
        slices: Sequence[NDArray] | None = None,
    ) -> None:
        """As `run`, for slices of any size; without `slices` each member gets its own sums alone.

        Args:
          mine: gets the sums of this member's slice.
          bounds: where each member's slice begins, and the end.
          owns: as of `run`.
          counts: likewise.
          add: likewise.
          stamp: likewise.
          slices: get the sums of all members' slices.
        """
        start, nothing = bounds[self._me], mine[:0]
        longest = max(end - begin for begin, end in itertools.pairwise(bounds))
        block = max(1, min(BLOCK_BYTES // mine.itemsize, longest))
        rooms = [1 + AHEAD * counts[other] for other in self.others]
        memory = self._buffers.array((sum(rooms), block), mine.dtype)
        peers = []
        for other, room in zip(self.others, rooms, strict=True):
            scratch, came, memory = memory[0], memory[1:room], memory[room:]
            parts = _parts(owns, bounds[other], bounds[other + 1], scratch)
            theirs = nothing if slices is None else slices[other]
            link, tells = self._links[other], slices is not None
            count = counts[other]
            peers.append(_Peer(link, stamp, parts, mine, came, count, theirs, tells=tells))
        self._added = 0

        def add_block() -> bool:
            stop = min(self._added + block, len(mine))
            if self._added == len(mine) or not all(peer.has(stop) for peer in peers):
                return False
            came = [row for peer in peers for row in peer.rows(self._added, stop)]
            add(mine[self._added : stop], start + self._added, came)
            self._added = stop
            return True

        self._move(peers, add_block)
        while add_block():
            pass

    def _move(self, peers: Sequence[_Peer], add_block: Callable[[], bool]) -> None:
        """Sends and receives until all is there, and adds up what has come."""
        while busy := [peer for peer in peers if peer.is_busy]:
            moved = sum(peer.send(self._added) + peer.receive(self._added) for peer in busy)
            while add_block():
                moved = 1
            if not moved:
                reading = [peer.link for peer in busy if peer.incoming(self._added)]
                writing = [peer.link for peer in busy if peer.outgoing(self._added)]
                self._patience.wait(reading, writing)


def _parts(owns: Sequence[Own], start: int, stop: int, scratch: NDArray) -> Iterator[memoryview]:
    """Bytes of own numbers, block by block; they are sent before the next ones are asked for."""
    for begin in range(start, stop, len(scratch)):
        room = scratch[: stop - begin]
        for own in owns:
            yield own.part(begin, room).view(np.uint8).data


class _Peer:
    """What goes to another member, and what comes from it: a stamp, parts of one slice, sums.

    Args:
      link: to it.
      stamp: goes first, both ways.
      parts: of its slice, to be sent.
      mine: this member's slice, whose sums are sent as they are there.
      came: memory for what comes and is to be added to them, a row for a block of one part.
      count: how many parts come of it.
      theirs: its slice, whose sums come.
      tells: whether the sums of this member's slice are sent.
    """

    def __init__(
        self,
        link: Link,
        stamp: bytes,
        parts: Iterator[memoryview],
        mine: NDArray,
        came: NDArray,
        count: int,
        theirs: NDArray,
        *,
        tells: bool = True,
    ) -> None:
        self.link, self._stamp, self._parts, self._came = link, stamp, parts, came
        self._count, self._step = count, mine.itemsize
        self._mine, self._theirs = mine.view(np.uint8).data, theirs.view(np.uint8).data
        self._telling = self._mine if tells else self._mine[:0]
        self._ring = came.view(np.uint8).reshape(-1).data
        self._sending = memoryview(stamp)
        self._told = 0  # bytes of the own sums that have been sent
        self._marks = bytearray(len(stamp))
        self._marked = self._got = self._filled = 0  # bytes of the stamp, parts and sums that came

    @property
    def is_busy(self) -> bool:
        return len(self._sending) > 0 or self._told < len(self._telling) or not self._has_all

    @property
    def _has_all(self) -> bool:
        return self._filled == len(self._theirs) and self.has(len(self._mine) // self._step)

    def has(self, number: int) -> bool:
        """Whether all parts up to a number of this member's slice have come."""
        return self._marked == len(self._marks) and self._got >= number * self._step * self._count

    def rows(self, begin: int, stop: int) -> NDArray:
        """The parts' numbers of a block, which may be overwritten once more has been added up."""
        first = begin // self._came.shape[1] % AHEAD * self._count
        block = self._came[first : first + self._count].reshape(-1)
        return block[: self._count * (stop - begin)].reshape(self._count, -1)

    def outgoing(self, added: int) -> memoryview:
        """What may be sent now that so many numbers of the own slice have been added up."""
        return self._sending or self._telling[self._told : added * self._step][:SEND_BYTES]

    def send(self, added: int) -> int:
        """Sends what there is room for; returns how many bytes."""
        data = self.outgoing(added)
        if not data:
            return 0
        count = self.link.send(data)
        if not self._sending:
            self._told += count
        elif count == len(data):
            self._sending = next(self._parts, memoryview(b""))
        else:
            self._sending = data[count:]
        return count

    def incoming(self, added: int) -> memoryview:
        """Where the next bytes go; nowhere as long as there is no room for them."""
        if self._marked < len(self._marks):
            return memoryview(self._marks)[self._marked :]
        due = len(self._mine) * self._count
        if self._got < due:
            at = self._got % len(self._ring)
            free = added * self._step * self._count + len(self._ring) - self._got
            return self._ring[at : at + min(free, due - self._got)]
        return self._theirs[self._filled : self._filled + SEND_BYTES]

    def receive(self, added: int) -> int:
        """Receives what has come and there is room for; returns how many bytes."""
        room = self.incoming(added)
        if not room:
            return 0
        count = self.link.receive(room)
        if self._marked < len(self._marks):
            self._marked += count
            if self._marked == len(self._marks):
                agree(self._stamp, bytes(self._marks), self.link.rank)
        elif self._got < len(self._mine) * self._count:
            self._got += count
        else:
            self._filled += count
        return count
