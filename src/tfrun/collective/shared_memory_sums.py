"""Sums between the workers of one machine, through memory that they share.

A tensor goes through in pieces that fit in a processor's cache. In each step every worker copies
its next piece in, adds up its own share of the piece before over all workers, in the order of
summation_order.py, and copies the sum of the one before that out. Between two steps all wait for
all: by a few bytes through their connections, which also tell when one dies. With several machines
the first worker of each then adds up with these what each machine has of the tree.
"""

from __future__ import annotations

import itertools
import math
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.compress import Compressed
from tfrun.collective.duplex_transfer import Inlet, Own, Pump
from tfrun.collective.links import Link
from tfrun.collective.memory_files import allocate
from tfrun.collective.packing import ALIGNMENT, InPlace
from tfrun.collective.stamps import agree
from tfrun.collective.summation_order import Holding, add_up
from tfrun.collective.tcp_sums import Flat, rounds

PIECE_BYTES = 1 << 20
SLOTS = 4  # pieces in flight, and one more: a slot is written to again when all have read it


def make(path: Path, workers: int) -> bool:
    """Makes the file that `workers` workers share; False where there is no room for it."""
    return allocate(path, SLOTS * PIECE_BYTES * (workers + 1))


def largest_piece(slots: Sequence[int], workers: Sequence[int]) -> int:
    """How many bytes of a tensor every machine has memory for, so that all go on piece by piece.

    Args:
      slots: for each machine, into how many parts its memory is divided.
      workers: likewise, how many it has.
    """
    sizes = [PIECE_BYTES * (count + 1) // n for n, count in zip(slots, workers, strict=True)]
    return min(sizes) // ALIGNMENT * ALIGNMENT


class Shared:
    """Some workers of one machine.

    Args:
      path: the file that they share, made already; one alone needs none.
      rank: this worker's.
      machines: the ranks of each machine.
      links: connections by position on this machine, to those in `tcp_sums.partners`.
      pump: moves the bytes.
      leaders: the first workers of all machines; None where this is not one of several's.
    """

    def __init__(
        self,
        path: Path,
        rank: int,
        machines: tuple[tuple[int, ...], ...],
        links: Mapping[int, Link],
        pump: Pump,
        leaders: Flat | None,
    ) -> None:
        self.machines, self._links, self._pump, self._leaders = machines, links, pump, leaders
        (self._ranks,) = (ranks for ranks in machines if rank in ranks)
        self._me, self._count = self._ranks.index(rank), len(self._ranks)
        self._divided: Holding | None = None
        size = SLOTS * PIECE_BYTES * (self._count + 1)
        if self._count == 1:
            memory = mmap.mmap(-1, size)
        else:
            with path.open("rb+") as file:
                memory = mmap.mmap(file.fileno(), size)
        self._memory = np.frombuffer(memory, np.uint8)

    @property
    def crosses(self) -> bool:
        """Whether this worker sends its machine's sums to other machines."""
        return self._leaders is not None

    def sum_large(
        self,
        out: NDArray,
        owns: Sequence[Own],
        holding: Holding,
        mark: bytes,
        compressed: Compressed | None = None,
    ) -> None:
        """Sums arrays of any size.

        Args:
          out: one-dimensional; gets the sum. Equal in size and dtype on all workers.
          owns: for each of this worker's nodes the numbers, as many.
          holding: which nodes those of each worker are.
          mark: says which collective this is.
          compressed: how the sums travel between machines; None: as they are.

        Raises:
          PeerGone, Disagreement: as `Flat.gather`; what is in `out` is worth nothing then.
        """

        def part_of(piece: int) -> NDArray:
            return out[piece * per_piece : (piece + 1) * per_piece]

        self._divided_for(holding, mark)
        per_piece = self._piece_bytes // out.itemsize
        pieces = -(-len(out) // per_piece)
        across = len(self.machines) > 1
        for step in range(pieces + (3 if across else 2)):
            if step:
                self._wait_for_all(mark)
            done = step - (3 if across else 2)
            if done >= 0 and self._leaders is None:
                part = part_of(done)
                part[:] = self._slots_of(self._sums[:1], done, part)[0]
            if across and 0 <= step - 2 < pieces and self._leaders is not None:
                part, coded = part_of(step - 2), None
                if compressed is not None:
                    begin = (step - 2) * per_piece
                    coded = compressed.part(begin, begin + len(part))
                sums = self._slots_of(self._sums, step - 2, part)
                mine = [InPlace(numbers) for numbers in sums]
                self._leaders.sum_large(part, mine, self._travel, mark, coded)
                sums[0][:] = part  # where the others of this machine look for it
            if 0 <= step - 1 < pieces:
                self._reduce(step - 1, part_of(step - 1))
            if step < pieces:
                for own, into in zip(
                    owns, self._slots_of(self._inputs[self._own], step, part_of(step)), strict=True
                ):
                    own.fill(into, step * per_piece)

    @property
    def holds_all(self) -> bool:
        """Whether all workers are on this machine."""
        return len(self.machines) == 1

    def sum_owned(
        self,
        mine: NDArray,
        bounds: Sequence[int],
        owns: Sequence[Own],
        holding: Holding,
        mark: bytes,
    ) -> None:
        """As `sum_large`, on one machine alone; each worker gets the sums of what it owns.

        Args:
          mine: gets those of this worker.
          bounds: where each worker's part begins, and the end; equal on all.
          owns: as of `sum_large`.
          holding: likewise.
          mark: likewise.
        """
        self._divided_for(holding, mark)
        per_piece = self._piece_bytes // mine.itemsize
        pieces, begin, end = -(-bounds[-1] // per_piece), bounds[self._me], bounds[self._me + 1]

        def like(piece: int) -> NDArray:  # as long as it, and never looked at
            count = min(bounds[-1] - piece * per_piece, per_piece)
            return np.broadcast_to(mine.dtype.type(0), (count,))

        for step in range(pieces + 2):
            if step:
                self._wait_for_all(mark)
            first = (step - 2) * per_piece
            if step >= 2 and begin < first + per_piece and first < end:
                here, stop = max(begin, first), min(end, first + per_piece)
                (sums,) = self._slots_of(self._sums[:1], step - 2, like(step - 2))
                mine[here - begin : stop - begin] = sums[here - first : stop - first]
            if 0 <= step - 1 < pieces:
                self._reduce(step - 1, like(step - 1))
            if step < pieces:
                slots = self._slots_of(self._inputs[self._own], step, like(step))
                for own, into in zip(owns, slots, strict=True):
                    own.fill(into, step * per_piece)

    def give_owned(
        self,
        theirs: Sequence[NDArray],
        own: Own,
        bounds: Sequence[int],
        holding: Holding,
        mark: bytes,
    ) -> None:
        """On one machine alone: gives what each worker owns to all others.

        Args:
          theirs: gets each worker's, by rank; this worker's own is passed over.
          own: this worker's numbers.
          bounds: as of `sum_owned`.
          holding: as of `sum_large`.
          mark: likewise.
        """
        self._divided_for(holding, mark)
        dtype, begin, end = theirs[self._me].dtype, bounds[self._me], bounds[self._me + 1]
        per_piece = self._piece_bytes // dtype.itemsize
        longest = max(stop - start for start, stop in itertools.pairwise(bounds))
        for step in range(-(-longest // per_piece) + 1):
            if step:
                self._wait_for_all(mark)
                for rank, into in enumerate(theirs):
                    part = into[(step - 1) * per_piece : step * per_piece]
                    if rank != self._me and len(part):
                        part[:] = self._slots_of(self._inputs[rank : rank + 1], step - 1, part)[0]
            at = begin + step * per_piece
            if at < end:
                slots = self._inputs[self._own.start : self._own.start + 1, step % SLOTS]
                size = min(per_piece, end - at) * dtype.itemsize
                own.fill(slots[0, :size].view(dtype), at)
        self._wait_for_all(mark)  # the next sum writes where others may be reading

    def _divided_for(self, holding: Holding, mark: bytes) -> None:
        if holding != self._divided:
            self._divide(holding)
            self._wait_for_all(mark)  # nobody reads what stood there otherwise

    def _divide(self, holding: Holding) -> None:
        """Divides the memory into slots for what this machine's workers hold."""
        inputs = [[node for rank in r for node in holding.nodes[rank]] for r in self.machines]
        self._travel = [holding.nodes_of(ranks) for ranks in self.machines]
        slots = [len(mine) + len(sums) for mine, sums in zip(inputs, self._travel, strict=True)]
        self._piece_bytes = largest_piece(slots, [len(ranks) for ranks in self.machines])
        self._divided, here = holding, self.machines.index(self._ranks)
        self._nodes, self._targets = inputs[here], self._travel[here]
        first = sum(len(holding.nodes[rank]) for rank in self._ranks[: self._me])
        self._own = slice(first, first + len(holding.nodes[self._ranks[self._me]]))
        shape = slots[here], SLOTS, self._piece_bytes
        pieces = self._memory[: math.prod(shape)].reshape(shape)
        self._inputs, self._sums = pieces[: len(self._nodes)], pieces[len(self._nodes) :]

    @staticmethod
    def _slots_of(slots: NDArray[np.uint8], piece: int, like: NDArray) -> NDArray:
        """Of each of these slots the piece's numbers, as many as `like` has."""
        return slots[:, piece % SLOTS, : like.nbytes].view(like.dtype)

    def _reduce(self, piece: int, like: NDArray) -> None:
        """Adds up this worker's share of a piece."""
        begin, end = (len(like) * i // self._count for i in (self._me, self._me + 1))
        inputs = self._slots_of(self._inputs, piece, like)[:, begin:end]
        sums = self._slots_of(self._sums, piece, like)[:, begin:end]
        parts = dict(zip(self._nodes, inputs, strict=True))
        for node, total in zip(self._targets, sums, strict=True):
            if (found := add_up(node, parts, total)) is not total:
                total[:] = found

    def _wait_for_all(self, mark: bytes) -> None:
        for told, heard in rounds(self._me, self._count):
            came = Inlet(np.empty(len(mark), np.uint8))
            self._pump.run(self._links[told], [memoryview(mark)], self._links[heard], [came])
            agree(mark, came.into.tobytes(), self._links[heard].rank)
