"""Sums and gathering over TCP: a ring for what is large, recursive doubling for what is small.

The ring is that of Patarasuk and Yuan (2009): each member sends 2 (n - 1) / n of the bytes, which
is the least there is. Here it is cut through: a member hands on what it has just received without
waiting for the end of a segment. Recursive doubling takes log2 n messages, which is the least too.
Both give every member the same bits: each number is computed once, or by the same formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.buffers import Buffers
from tfrun.collective.compress import Coded, Compressed
from tfrun.collective.duplex_transfer import SCRATCH_BYTES, Inlet, Outlet, Own, Pump
from tfrun.collective.links import Link
from tfrun.collective.packing import KEPT_BYTES
from tfrun.collective.stamps import agree


def ring_neighbours(position: int, count: int) -> tuple[int, int]:
    """The member before and the one after, by position."""
    return (position - 1) % count, (position + 1) % count


def doubling_partners(position: int, count: int) -> list[int]:
    """The members that one exchanges with, in order; those beyond a power of two have one."""
    power = 1 << (count.bit_length() - 1)
    if position >= power:
        return [position - power]
    extra = [position + power] if position + power < count else []
    return extra + [position ^ (1 << level) for level in range(power.bit_length() - 1)]


def partners(position: int, count: int) -> set[int]:
    """All members that one needs a connection to."""
    needed = {*ring_neighbours(position, count), *doubling_partners(position, count)}
    return needed - {position}


class Flat:
    """Some workers that are all connected with each other in the same way.

    Args:
      me: this worker's position among them.
      links: connections by position, to those in `partners`.
      count: how many they are.
      pump: moves the bytes.
    """

    def __init__(self, me: int, links: Mapping[int, Link], count: int, pump: Pump) -> None:
        self.me, self.links, self.count, self._pump = me, links, count, pump
        self._buffers = Buffers(largest=KEPT_BYTES)  # for what travels compressed
        self._scratch = np.empty(SCRATCH_BYTES, np.uint8)

    def sum_small(self, numbers: NDArray, stamp: bytes) -> None:
        """Sums a small array in place.

        Args:
          numbers: one-dimensional, contiguous, equal in size and dtype on all.
          stamp: says which collective this is; equal on all. A fixed length.

        Raises:
          PeerGone: a peer is; what is in `numbers` is worth nothing then.
          Disagreement: a peer is at another collective.
        """
        power = 1 << (self.count.bit_length() - 1)
        order = doubling_partners(self.me, self.count)
        if self.me >= power:
            self._exchange(order[0], numbers, stamp, gives=True, takes=False)
            numbers[:] = self._exchange(order[0], numbers, stamp, gives=False, takes=True)
            return
        if self.me + power < self.count:
            np.add(numbers, self._exchange(order[0], numbers, stamp, gives=False), out=numbers)
        for partner in order[1:] if self.me + power < self.count else order:
            theirs = self._exchange(partner, numbers, stamp)
            # The same order on both sides, for the bits of a NaN.
            first, second = (numbers, theirs) if self.me < partner else (theirs, numbers)
            np.add(first, second, out=numbers)
        if self.me + power < self.count:
            self._exchange(self.me + power, numbers, stamp, takes=False)

    def _exchange(
        self,
        partner: int,
        numbers: NDArray,
        stamp: bytes,
        *,
        gives: bool = True,
        takes: bool = True,
    ) -> NDArray:
        link = self.links[partner]
        mine = memoryview(stamp + numbers.tobytes()) if gives else memoryview(b"")
        came = np.empty(len(stamp) + numbers.nbytes if takes else 0, np.uint8)
        self._pump.run(link, [mine], link, [self._stamped(came, stamp, link)])
        return came[len(stamp) :].view(numbers.dtype) if takes else numbers

    def sum_large(
        self, out: NDArray, own: Own, stamp: bytes, compressed: Compressed | None = None
    ) -> None:
        """Sums arrays of any size.

        Args:
          out: one-dimensional, contiguous, equal in size and dtype on all; gets the sums.
          own: this member's numbers, as many; they may stand in `out`.
          stamp: as for `sum_small`.
          compressed: how they travel; None: as they are.

        Raises:
          PeerGone, Disagreement: as `sum_small`; what is in `out` is worth nothing then.
        """
        if compressed is not None:
            codes = self._buffers.array((len(out),), compressed.dtype)
            self.sum_large(codes, Coded(own, compressed), stamp)
            out[:] = codes
            return
        count, me = self.count, self.me
        bounds = [len(out) * i // count for i in range(count + 1)]
        parts = [out[bounds[i] : bounds[i + 1]] for i in range(count)]
        # Each own number is used once: sent as it is, or added to what has come.
        reduced = [
            Inlet(parts[i], own, bounds[i])
            for i in ((me - step - 1) % count for step in range(count - 1))
        ]
        whole = [Inlet(parts[(me - step) % count]) for step in range(count - 1)]
        first = Outlet(own, bounds[me], len(parts[me]), self._scratch.view(out.dtype))
        self._go_round(first, [*reduced, *whole], stamp)

    def gather(self, blocks: Sequence[NDArray[np.uint8]], stamp: bytes) -> None:
        """Gives each member's block to all.

        Args:
          blocks: one for each member, of any sizes that all know; the own one is filled.
          stamp: as for `sum_small`.
        """
        others = [Inlet(blocks[(self.me - step) % self.count]) for step in range(1, self.count)]
        self._go_round(Inlet(blocks[self.me]).bytes, others, stamp)

    def _go_round(self, own: memoryview | Outlet, inlets: list[Inlet], stamp: bytes) -> None:
        """Sends `own` and then all that comes in, but for the last, which is at its end."""
        before, after = ring_neighbours(self.me, self.count)
        came = self._stamped(np.empty(len(stamp), np.uint8), stamp, self.links[before])
        self._pump.run(
            self.links[after],
            [memoryview(stamp), own, *(inlet.bytes for inlet in inlets[:-1])],
            self.links[before],
            [came, *inlets],
            ahead=len(stamp) + len(own),
            kept=len(stamp),
        )

    @staticmethod
    def _stamped(into: NDArray, stamp: bytes, link: Link) -> Inlet:
        """For bytes that begin with a stamp. Who is at another collective may send fewer."""
        size = len(stamp)
        return Inlet(into, head=size, check=lambda: agree(stamp, into[:size].tobytes(), link.rank))
