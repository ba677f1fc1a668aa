"""Sums and gathering over TCP, of what each member has of the tree of summation_order.py.

Gathering takes log2 n messages (Bruck et al. 1997): in each round one tells twice as many members'
blocks. Few members tell all of them at once instead, which is the same bytes. So does what is small
get to all, who all add it up in the same order. Of what is large each member adds up a part, see
exchange.py. Every member gets the same bits: each number is computed once, or by the same formula.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.buffers import Buffers
from tfrun.collective.compress import Coded, Compressed
from tfrun.collective.duplex_transfer import Inlet, Own, Pump
from tfrun.collective.exchange import BLOCK_BYTES, Add, Exchange
from tfrun.collective.handing_on import hand_on
from tfrun.collective.links import Link
from tfrun.collective.packing import ALIGNMENT, KEPT_BYTES
from tfrun.collective.stamps import agree
from tfrun.collective.summation_order import Node, add_up

FEW = 4  # so many have connections to all anyway (`partners`), and hardly more messages than rounds
_HEAD = ALIGNMENT  # bytes before each block: the stamp, and what aligns the block


def rounds(position: int, count: int) -> list[tuple[int, int]]:
    """Whom one tells, and whom one hears from, in each round of a dissemination.

    Hensgen, Finkel and Manber (1988): after round k everyone knows of 2^(k+1) - 1 others.
    """
    return [
        ((position + (1 << level)) % count, (position - (1 << level)) % count)
        for level in range((count - 1).bit_length())
    ]


def partners(position: int, count: int) -> set[int]:
    """All members that one needs a connection to, but for large sums: these need all."""
    return {member for pair in rounds(position, count) for member in pair}


class Flat:
    """Some workers that are all connected with each other in the same way.

    Args:
      me: this worker's position among them.
      links: connections by position: to those in `partners`, and for large sums to all.
      count: how many they are.
      pump: moves the bytes.
    """

    def __init__(self, me: int, links: Mapping[int, Link], count: int, pump: Pump) -> None:
        self.me, self.links, self.count, self._pump = me, links, count, pump
        self._exchange = Exchange(me, links, count, pump.patience)
        self._buffers = Buffers(largest=KEPT_BYTES)  # for what travels compressed, and as scratch
        # Of each round of gathering: how many blocks, how many one has already, to whom, and from
        # whom. They are the last member's own and those of the members before it.
        self._rounds = [
            (min(1 << level, count - (1 << level)), 1 << level, told, heard)
            for level, (told, heard) in enumerate(rounds(me, count))
        ]
        if count <= FEW:
            self._rounds = [
                (1, step, (me + step) % count, (me - step) % count) for step in range(1, count)
            ]

    def gather(
        self, sizes: Sequence[int], fill: Callable[[NDArray[np.uint8]], None], stamp: bytes
    ) -> list[NDArray[np.uint8]]:
        """Gives each member's block to all; returns them by position.

        Args:
          sizes: of the blocks, in bytes.
          fill: writes the own one.
          stamp: says which collective this is; equal on all. A fixed length.

        Raises:
          PeerGone: a peer is.
          Disagreement: a peer is at another collective.
        """
        ends = _ends(self.me, tuple(sizes))
        whole = np.empty(ends[-1], np.uint8)
        memory = whole.data
        memory[:_HEAD] = stamp.ljust(_HEAD, b"\0")
        fill(whole[_HEAD : ends[1]])
        came = [
            [self._stamped(whole[ends[have] : ends[have + count]], stamp, self.links[heard])]
            for count, have, _, heard in self._rounds
        ]
        self._tell([memory[: ends[count]] for count, *_ in self._rounds], came)
        return [
            whole[ends[have] + _HEAD : ends[have + 1]]
            for have in ((self.me - member) % self.count for member in range(self.count))
        ]

    def _tell(self, messages: Sequence[memoryview], came: Sequence[Sequence[Inlet]]) -> None:
        """Sends and receives as `self._rounds` say."""
        told = [0] * len(messages)
        if self.count <= FEW:  # no message has anything in it of what comes
            told = [
                self.links[to].send(message)
                for message, (_, _, to, _) in zip(messages, self._rounds, strict=True)
            ]
        for message, sent, inlets, (_, _, to, heard) in zip(
            messages, told, came, self._rounds, strict=True
        ):
            self._pump.run(self.links[to], [message[sent:]], self.links[heard], inlets)

    def give(self, blocks: Sequence[NDArray[np.uint8]], has: Sequence[bool], stamp: bytes) -> None:
        """Gives what some members have to those that lack it, see `handing_on.hand_on`."""
        hand_on(blocks, self.me, has, self.links, self._pump, stamp)

    def sum_small(
        self, out: NDArray, owns: Sequence[Own], nodes: Sequence[Sequence[Node]], stamp: bytes
    ) -> None:
        """Sums small arrays: everyone gets all of them.

        Args:
          out: one-dimensional, contiguous, equal in size and dtype on all; gets the sum.
          owns: for each of this member's nodes the numbers, as many.
          nodes: of each member; all of them make up a tree.
          stamp: as for `gather`.

        Raises:
          PeerGone, Disagreement: as `gather`; what is in `out` is worth nothing then.
        """

        def fill(block: NDArray[np.uint8]) -> None:
            for own, numbers in zip(owns, rows_of(block, self.me), strict=True):
                own.fill(numbers, 0)

        def rows_of(block: NDArray[np.uint8], member: int) -> NDArray:
            return block.view(out.dtype).reshape(len(nodes[member]), len(out))

        blocks = self.gather([len(mine) * out.nbytes for mine in nodes], fill, stamp)
        parts: dict[Node, NDArray] = {}
        for member, block in enumerate(blocks):
            parts |= zip(nodes[member], rows_of(block, member), strict=True)
        add_up(_root(nodes), parts, out)

    def sum_large(
        self,
        out: NDArray,
        owns: Sequence[Own],
        nodes: Sequence[Sequence[Node]],
        stamp: bytes,
        compressed: Compressed | None = None,
    ) -> None:
        """Sums arrays of any size.

        Args:
          out: as for `sum_small`.
          owns: likewise.
          nodes: likewise.
          stamp: likewise.
          compressed: how they travel, each member's added up; None: as they are.

        Raises:
          PeerGone, Disagreement: as `gather`; what is in `out` is worth nothing then.
        """
        if compressed is not None:
            codes = self._buffers.array((len(out),), compressed.dtype)
            coded = Coded(owns, compressed)
            self._exchange.run(codes, [coded], [1] * self.count, coded.add, stamp)
            out[:] = codes
            return
        add = self._adding(owns, nodes, out.dtype)
        self._exchange.run(out, owns, [len(mine) for mine in nodes], add, stamp)

    def sum_owned(
        self,
        mine: NDArray,
        bounds: Sequence[int],
        owns: Sequence[Own],
        nodes: Sequence[Sequence[Node]],
        stamp: bytes,
    ) -> None:
        """Sums arrays of any size; each member gets the sums of what it owns alone.

        Args:
          mine: gets those of this member.
          bounds: where each member's part begins, and the end; equal on all.
          owns: as for `sum_small`.
          nodes: likewise.
          stamp: likewise.

        Raises:
          PeerGone, Disagreement: as `gather`; what is in `mine` is worth nothing then.
        """
        add = self._adding(owns, nodes, mine.dtype)
        self._exchange.sum_owned(mine, bounds, owns, [len(n) for n in nodes], add, stamp)

    def give_owned(
        self, theirs: Sequence[NDArray], own: Own, bounds: Sequence[int], stamp: bytes
    ) -> None:
        """Gives what each member owns to all others.

        Args:
          theirs: gets each member's, by position; this member's own is passed over.
          own: this member's numbers.
          bounds: as for `sum_owned`.
          stamp: likewise.

        Raises:
          PeerGone, Disagreement: as `gather`.
        """
        self._exchange.give_owned(theirs, own, bounds[self.me], bounds[self.me + 1], stamp)

    def _adding(self, owns: Sequence[Own], nodes: Sequence[Sequence[Node]], dtype: np.dtype) -> Add:
        """Adds up blocks of the own numbers and of what has come, in the order of the tree."""
        root = _root(nodes)
        others = [node for member in self._exchange.others for node in nodes[member]]
        scratches = self._buffers.array((len(owns), BLOCK_BYTES // dtype.itemsize), dtype)

        def add(into: NDArray, start: int, came: Sequence[NDArray]) -> None:
            parts = dict(zip(others, came, strict=True))
            for node, own, scratch in zip(nodes[self.me], owns, scratches, strict=True):
                parts[node] = own.part(start, scratch[: len(into)])
            add_up(root, parts, into)

        return add

    @staticmethod
    def _stamped(into: NDArray, stamp: bytes, link: Link) -> Inlet:
        """For bytes that begin with a stamp. Who is at another collective may send fewer."""
        size = len(stamp)
        return Inlet(into, head=size, check=lambda: agree(stamp, into[:size].tobytes(), link.rank))


@functools.lru_cache(maxsize=256)  # each step has the same sizes
def _ends(me: int, sizes: tuple[int, ...]) -> list[int]:
    """Where the members' blocks end: the own one stands first, then those of `Exchange.others`."""
    count = len(sizes)
    order = ((me - step) % count for step in range(count))
    return [0, *itertools.accumulate(_HEAD + sizes[member] for member in order)]


def _root(nodes: Sequence[Sequence[Node]]) -> Node:
    return 0, max(mine[-1][1] for mine in nodes)
