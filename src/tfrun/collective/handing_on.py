"""Gives what some workers have to those that lack it, as it is, and to nobody else.

Along a binomial tree over the ranks, whose edges are connections that all workers have (`rounds` of
tcp_sums.py). Who lacks it passes each part on as soon as it has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.duplex_transfer import Inlet, Pump
from tfrun.collective.links import Link
from tfrun.collective.stamps import agree

PART_BYTES = 1 << 20


def neighbours(rank: int, has: Sequence[bool]) -> tuple[int | None, list[int]]:
    """Returns from whom a worker gets it, if from anybody, and to whom it gives it, in order.

    Args:
      rank: the worker's.
      has: whether each worker has it already, by rank; at least one has, or all.
    """
    count, root = len(has), list(has).index(True)
    place = (rank - root) % count
    source: int | None = None
    targets: list[int] = []
    for level in range((count - 1).bit_length()):
        step = 1 << level
        if step <= place < 2 * step and not has[rank]:
            source = (rank - step) % count
        elif place < step and place + step < count and not has[(rank + step) % count]:
            targets.append((rank + step) % count)
    return source, targets


def hand_on(
    blocks: Sequence[NDArray[np.uint8]],
    rank: int,
    has: Sequence[bool],
    links: Mapping[int, Link],
    pump: Pump,
    stamp: bytes,
) -> None:
    """Has all workers hold the same bytes.

    Args:
      blocks: what this worker has, or the memory for it; of the same sizes on all workers.
      rank: this worker's.
      has: see `neighbours`.
      links: this worker's connections, by rank.
      pump: moves the bytes.
      stamp: says which collective this is; equal on all.

    Raises:
      PeerGone: a peer is; what is in `blocks` of one that lacked it is worth nothing then.
      Disagreement: a peer is at another collective.
    """
    source, targets = neighbours(rank, has)
    if source is not None:
        _receive(links[source], _stamped(stamp, links[source]), pump)
    for target in targets:
        _send(links[target], memoryview(stamp), pump)
    for part in _parts(blocks):
        if source is not None:
            _receive(links[source], Inlet(part), pump)
        for target in targets:
            _send(links[target], part.data, pump)


def _parts(blocks: Sequence[NDArray[np.uint8]]) -> Iterator[NDArray[np.uint8]]:
    for block in blocks:
        for begin in range(0, len(block), PART_BYTES):
            yield block[begin : begin + PART_BYTES]


def _send(link: Link, data: memoryview, pump: Pump) -> None:
    pump.run(link, [data], link, [])


def _receive(link: Link, inlet: Inlet, pump: Pump) -> None:
    pump.run(link, [], link, [inlet])


def _stamped(stamp: bytes, link: Link) -> Inlet:
    into = np.empty(len(stamp), np.uint8)
    size = len(stamp)
    return Inlet(into, head=size, check=lambda: agree(stamp, into.tobytes(), link.rank))
