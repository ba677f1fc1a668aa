"""Sends through one connection and receives from another at once, without a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.links import Link, Patience

SCRATCH_BYTES = 256 << 10  # fits in a core's cache, next to what it is added to
SEND_BYTES = 1 << 20


class Own(Protocol):
    """This worker's numbers in a sum, wherever they stand."""

    def fill(self, into: NDArray, start: int) -> None:
        """Copies the numbers from `start` on."""
        ...

    def part(self, start: int, scratch: NDArray) -> NDArray:
        """As many numbers from `start` on as `scratch` has room for: where they stand, or there."""
        ...


@dataclass(eq=False)
class Outlet:
    """Own numbers as bytes to send; what has to be copied is so a little at a time, for the caches.

    Attributes:
      own: the numbers.
      start: the first of them to send.
      count: how many.
      scratch: for the copies; nobody else uses it meanwhile.
    """

    own: Own
    start: int
    count: int
    scratch: NDArray

    def __post_init__(self) -> None:
        self._bytes = memoryview(b"")
        self._first = self._last = 0  # which bytes these are

    def __len__(self) -> int:
        return self.count * self.scratch.itemsize

    def __getitem__(self, wanted: slice) -> memoryview:
        """The bytes from `wanted.start` on; fewer than wanted where the scratch ends."""
        if not self._first <= wanted.start < self._last:
            size = self.scratch.itemsize
            first = wanted.start // size
            count = min(len(self.scratch), self.count - first)
            numbers = self.own.part(self.start + first, self.scratch[:count])
            self._bytes = numbers.view(np.uint8).data
            self._first, self._last = first * size, (first + count) * size
        return self._bytes[wanted.start - self._first : min(wanted.stop, self._last) - self._first]


@dataclass(eq=False)
class Inlet:
    """Where received bytes go.

    Attributes:
      into: one-dimensional array, contiguous.
      add: writes sums of the numbers that have come and of others, instead of these: is called with
        where they go, at which number that begins, and what has come. None: nothing is added.
      check: is called once, as soon as the first `head` bytes are there: nobody may send the rest.
    """

    into: NDArray
    add: Callable[[NDArray, int, NDArray], None] | None = None
    head: int = 0
    check: Callable[[], None] | None = None
    bytes: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = self.into.view(np.uint8).data


class Pump:
    """Moves bytes out through one link and in through another, at the same time."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._scratch = np.empty(SCRATCH_BYTES, np.uint8)
        self._scratch_bytes = self._scratch.data

    def run(
        self,
        out: Link,
        sends: Sequence[memoryview | Outlet],
        source: Link,
        inlets: Sequence[Inlet],
        *,
        ahead: int | None = None,
        kept: int = 0,
    ) -> None:
        """Sends all of `sends` and fills all of `inlets`.

        Args:
          out: where to send to.
          sends: what to send.
          source: where to receive from; may be `out`.
          inlets: where to.
          ahead: so many bytes of `sends` are there already; what follows them is what comes in.
            None: all are there.
          kept: so many of the first bytes that come in are not sent on.

        Raises:
          PeerGone: one of the two peers is; what is in the inlets is worth nothing then.
        """
        sends, inlets = [s for s in sends if len(s)], [i for i in inlets if len(i.bytes)]
        to_send, to_get = sum(map(len, sends)), sum(len(i.bytes) for i in inlets)
        sent = got = 0
        sending, send_at = 0, 0  # which one, and where in it
        filling, fill_at, held = 0, 0, 0  # held: bytes in the scratch that make no whole number
        while sent < to_send or got < to_get:
            moved = 0
            may_send = to_send if ahead is None else min(to_send, ahead + max(0, got - kept))
            if sent < may_send:
                view = sends[sending]
                stop = min(len(view), send_at + min(may_send - sent, SEND_BYTES))
                moved = count = out.send(view[send_at:stop])
                sent += count
                send_at += count
                if send_at == len(view):
                    sending, send_at = sending + 1, 0
            if got < to_get:
                inlet = inlets[filling]
                room = len(inlet.bytes) - fill_at
                if inlet.add is not None:
                    stop = min(SCRATCH_BYTES, room)
                    count = source.receive(self._scratch_bytes[held:stop])
                    if count:
                        done = self._add(inlet, fill_at, held + count)
                        held += count - done
                        fill_at += done
                        got += done
                else:
                    count = source.receive(inlet.bytes[fill_at : fill_at + SEND_BYTES])
                    fill_at += count
                    got += count
                moved += count
                if inlet.check is not None and fill_at >= inlet.head:
                    inlet.check()
                    inlet.check = None
                if fill_at == len(inlet.bytes):
                    filling, fill_at = filling + 1, 0
            if not moved:
                reading = source if got < to_get else None
                may_send = to_send if ahead is None else min(to_send, ahead + max(0, got - kept))
                self.patience.wait(reading, out if sent < may_send else None)

    def _add(self, inlet: Inlet, at: int, count: int) -> int:
        """Sums the numbers in the first `count` bytes of the scratch, as far as they are whole.

        Args:
          inlet: where they go, and what is added.
          at: from which of its bytes on.
          count: bytes.

        Returns:
          The bytes of the whole numbers; what is left over begins the scratch now.
        """
        assert inlet.add is not None
        dtype = inlet.into.dtype
        first, whole = at // dtype.itemsize, count // dtype.itemsize
        size = whole * dtype.itemsize
        theirs = self._scratch[:size].view(dtype)
        inlet.add(inlet.into[first : first + whole], first, theirs)
        if rest := count - size:
            self._scratch[:rest] = self._scratch[size:count].copy()
        return size
