"""Sums between the workers of one machine, through memory that they share.

A tensor goes through in pieces that fit in a processor's cache. In each step every worker copies
its next piece in, adds up its own share of the piece before over all workers, in the order of
their ranks, and copies the sum of the one before that out. Between two steps all wait for all: by
a few bytes through their connections, which also tell when one dies. With several machines the
first worker of each then has the sums go round among these.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.compress import Compressed
from tfrun.collective.duplex_transfer import Inlet, Own, Pump
from tfrun.collective.links import Link
from tfrun.collective.memory_files import allocate
from tfrun.collective.packing import InPlace
from tfrun.collective.stamps import agree
from tfrun.collective.tcp_sums import Flat

PIECE_BYTES = 1 << 20
SLOTS = 4  # pieces in flight, and one more: a slot is written to again when all have read it


def make(path: Path, workers: int) -> bool:
    """Makes the file that `workers` workers share; False where there is no room for it."""
    return allocate(path, SLOTS * PIECE_BYTES * (workers + 1))


def barrier_partners(me: int, count: int) -> list[tuple[int, int]]:
    """Whom one tells, and whom one hears from, in each round of a dissemination barrier.

    Hensgen, Finkel and Manber (1988): after round k everyone knows of 2^(k+1) others.
    """
    return [
        ((me + (1 << level)) % count, (me - (1 << level)) % count)
        for level in range((count - 1).bit_length())
    ]


class Shared:
    """Some workers of one machine.

    Args:
      path: the file that they share, made already; one alone needs none.
      me: this worker's position among them.
      count: how many they are.
      links: connections by position, to those in `barrier_partners`.
      pump: moves the bytes.
      leaders: the first workers of all machines; None where this is not one of several's.
      machines: how many machines there are.
    """

    def __init__(
        self,
        path: Path,
        me: int,
        count: int,
        links: Mapping[int, Link],
        pump: Pump,
        leaders: Flat | None,
        machines: int,
    ) -> None:
        self._me, self._count, self._links, self._pump = me, count, links, pump
        self._leaders, self.machines = leaders, machines
        size = SLOTS * PIECE_BYTES * (count + 1)
        if count == 1:
            memory = mmap.mmap(-1, size)
        else:
            with path.open("rb+") as file:
                memory = mmap.mmap(file.fileno(), size)
        pieces = np.frombuffer(memory, np.uint8).reshape(count + 1, SLOTS, PIECE_BYTES)
        self._inputs, self._sums = pieces[:count], pieces[count]

    @property
    def crosses(self) -> bool:
        """Whether this worker sends its machine's sums to other machines."""
        return self._leaders is not None

    def sum_large(
        self, out: NDArray, own: Own, mark: bytes, compressed: Compressed | None = None
    ) -> None:
        """Sums an array of any size.

        Args:
          out: one-dimensional; gets the sums. Equal in size and dtype on all workers.
          own: this worker's numbers, as many.
          mark: says which collective this is.
          compressed: how the sums travel between machines; None: as they are.

        Raises:
          PeerGone, Disagreement: as `Flat.sum_small`; what is in `out` is worth nothing then.
        """

        def part_of(piece: int) -> NDArray:
            return out[piece * per_piece : (piece + 1) * per_piece]

        per_piece = PIECE_BYTES // out.itemsize
        pieces = -(-len(out) // per_piece)
        across = self.machines > 1
        for step in range(pieces + (3 if across else 2)):
            if step:
                self._wait_for_all(mark)
            done = step - (3 if across else 2)
            if done >= 0:
                part = part_of(done)
                part[:] = self._sum_of(done, part)
            if across and 0 <= step - 2 < pieces and self._leaders is not None:
                part, coded = part_of(step - 2), None
                if compressed is not None:
                    begin = (step - 2) * per_piece
                    coded = compressed.part(begin, begin + len(part))
                sums = self._sum_of(step - 2, part)
                self._leaders.sum_large(sums, InPlace(sums), mark, coded)
            if 0 <= step - 1 < pieces:
                self._reduce(step - 1, part_of(step - 1))
            if step < pieces:
                mine = self._inputs[self._me, step % SLOTS, : part_of(step).nbytes]
                own.fill(mine.view(out.dtype), step * per_piece)

    def _sum_of(self, piece: int, like: NDArray) -> NDArray:
        return self._sums[piece % SLOTS, : like.nbytes].view(like.dtype)

    def _reduce(self, piece: int, like: NDArray) -> None:
        """Adds up this worker's share of a piece."""
        begin, end = (len(like) * i // self._count for i in (self._me, self._me + 1))
        total = self._sum_of(piece, like)[begin:end]
        first, *others = (
            self._inputs[i, piece % SLOTS, : like.nbytes].view(like.dtype)[begin:end]
            for i in range(self._count)
        )
        if not others:
            total[:] = first
        for other in others:
            first = np.add(first, other, out=total)

    def _wait_for_all(self, mark: bytes) -> None:
        for told, heard in barrier_partners(self._me, self._count):
            came = Inlet(np.empty(len(mark), np.uint8))
            self._pump.run(self._links[told], [memoryview(mark)], self._links[heard], [came])
            agree(mark, came.into.tobytes(), self._links[heard].rank)
