"""Sends through one connection and receives from another at once, without a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.links import Link, Patience

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
class Inlet:
    """Where received bytes go.

    Attributes:
      into: one-dimensional array, contiguous.
      check: is called once, as soon as the first `head` bytes are there: nobody may send the rest.
    """

    into: NDArray
    head: int = 0
    check: Callable[[], None] | None = None
    bytes: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self.bytes = self.into.view(np.uint8).data


class Pump:
    """Moves bytes out through one link and in through another, at the same time."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience

    def run(
        self, out: Link, sends: Sequence[memoryview], source: Link, inlets: Sequence[Inlet]
    ) -> None:
        """Sends all of `sends` and fills all of `inlets`.

        Args:
          out: where to send to.
          sends: what to send.
          source: where to receive from; may be `out`.
          inlets: where to.

        Raises:
          PeerGone: one of the two peers is; what is in the inlets is worth nothing then.
        """
        sends, inlets = [s for s in sends if len(s)], [i for i in inlets if len(i.bytes)]
        sending, send_at = 0, 0  # which one, and where in it
        filling, fill_at = 0, 0
        while sending < len(sends) or filling < len(inlets):
            moved = 0
            if sending < len(sends):
                view = sends[sending]
                moved = out.send(view[send_at : send_at + SEND_BYTES])
                send_at += moved
                if send_at == len(view):
                    sending, send_at = sending + 1, 0
            if filling < len(inlets):
                inlet = inlets[filling]
                count = source.receive(inlet.bytes[fill_at : fill_at + SEND_BYTES])
                fill_at += count
                moved += count
                if inlet.check is not None and fill_at >= inlet.head:
                    inlet.check()
                    inlet.check = None
                if fill_at == len(inlet.bytes):
                    filling, fill_at = filling + 1, 0
            if not moved:
                reading = [source] if filling < len(inlets) else []
                self.patience.wait(reading, [out] if sending < len(sends) else [])
