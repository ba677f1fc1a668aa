"""The collective of a round's workers: the sums and gathers that the code above calls."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrun.collective import stamps
from tfrun.collective.compress import Compressed, Residuals
from tfrun.collective.duplex_transfer import Own, Pump
from tfrun.collective.errors import PeerAbsent, PeerGone, again
from tfrun.collective.links import Link, Patience
from tfrun.collective.packing import Blocks, Packer, PackingReader, layout_of
from tfrun.collective.shared_memory_sums import Shared
from tfrun.collective.stamps import checksum_of, stamp
from tfrun.collective.summation_order import Holding
from tfrun.collective.tcp_sums import Flat

# Up to there messages cost more than bytes, and among many workers up to so many times as many.
SMALL_BYTES, SMALL_ARRAYS = 64 << 10, 16


@dataclass(kw_only=True)
class Counts:
    """What this worker has done.

    Attributes:
      collectives: how many.
      sums: reductions of one packed array; a collective has one for each dtype.
      copied_bytes: of tensors, before they were sent or summed.
      compressed: of the sums those that have travelled compressed.
    """

    collectives: int = 0
    sums: int = 0
    copied_bytes: int = 0
    compressed: int = 0


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Which of some tensors are gradients: they may travel compressed.

    Attributes:
      which: their positions; all are float32.
      name: of them all, letters and digits: other gradients of this training have another one.
      version: how many times gradients of this name have been summed, in all rounds: a whole
        number, or what has it once a graph runs.
    """

    which: Collection[int]
    name: str
    version: Any


class Collective:
    """All-reduce, all-gather and broadcast between the workers of a round.

    Every worker calls the same methods in the same order. Once one has failed, all do: what has
    been lost cannot be caught up with. From any thread, one call after the other.

    Args:
      rank: this worker's.
      links: connections to `tcp_sums.partners`, by rank; and to all, unless memory is shared.
      world: how many workers.
      patience: how long a silent peer is waited for.

    Attributes:
      small_bytes: what is up to so large goes to all, who all add it up. All workers change it
        between the same two calls.
    """

    def __init__(
        self, rank: int, links: Mapping[int, Link], world: int, patience: Patience | None = None
    ) -> None:
        self.rank, self.world = rank, world
        self.small_bytes = SMALL_BYTES
        self.counts = Counts()
        self._each = self._holding = Holding(tuple((other,) for other in range(world)))
        self._links: dict[int, Link] = {id(link): link for link in links.values()}
        self._flat = Flat(rank, links, world, Pump(patience or Patience()))
        self._packer = Packer()
        self._shared: Shared | None = None
        self._residuals: Residuals | None = None
        self._calling = threading.Lock()
        self._last: int | None = None  # the last one that all workers come to
        self._absent = ""
        self._over: BaseException | None = None
        self._marks, self._mark = 0, b""

    def hold(self, replicas: Sequence[Sequence[int]]) -> None:
        """Says which replicas each worker holds; all workers call this between the same two calls.

        Until then each holds the one of its rank.

        Args:
          replicas: their numbers, from 0 on, by rank.
        """
        self._holding = Holding(tuple(tuple(sorted(own)) for own in replicas))

    def all_reduce(
        self, tensors: Sequence[NDArray], gradients: Gradients | None = None
    ) -> list[NDArray]:
        """Sums each tensor over the workers, those of low precision in float32.

        Args:
          tensors: of any shapes and numeric dtypes, which are equal on all workers. They are not
            written to, whatever TensorFlow says that may be done with them.
          gradients: which of them may travel compressed, where the workers have agreed to do so.

        Returns:
          The sums, bit for bit the same on all workers. They may share memory.

        Raises:
          PeerGone: a peer is, and there is no result.
          Disagreement: a peer is at another collective.
        """
        return self._all_reduce([tensors], self._each, gradients)

    def all_reduce_parts(
        self,
        parts: Sequence[Sequence[NDArray]],
        gradients: Gradients | None = None,
        dtypes: Sequence[np.dtype] | None = None,
    ) -> list[NDArray]:
        """Sums each tensor over the replicas.

        The bits do not depend on who holds which, but for what travels compressed.

        Args:
          parts: what `summation_order.Adder.take` gives for this worker's replicas.
          gradients: as for `all_reduce`.
          dtypes: of the replicas' tensors, `Adder.dtypes`; None: as in `parts`, which where some
            are of low precision depends on who holds what.

        Returns, Raises:
          As `all_reduce`.
        """
        return self._all_reduce(parts, self._holding, gradients, dtypes)

    def all_gather(self, tensors: Sequence[NDArray]) -> list[list[NDArray]]:
        """Gives every worker all workers' tensors.

        Args:
          tensors: of any dtypes; these and the number of dimensions are equal on all workers, the
            shapes need not be.

        Returns:
          For each of `tensors` the workers' own, by rank.
        """
        return self._all_gather([tensors], self._each)

    def all_gather_parts(self, parts: Sequence[Sequence[NDArray]]) -> list[list[NDArray]]:
        """Gives every worker all replicas' tensors.

        Args:
          parts: for each replica of this worker its tensors, as for `all_gather`; ascending.

        Returns:
          For each tensor the replicas' own, by number.
        """
        return self._all_gather(parts, self._holding)

    def broadcast(self, tensor: NDArray, root: int = 0) -> NDArray:
        """Gives every worker the root's tensor, bit for bit; shape and dtype are equal on all."""
        made = np.array(tensor, order="C")
        self.give([made], [rank == root for rank in range(self.world)])
        return made

    def give(self, arrays: Sequence[NDArray], has: Sequence[bool]) -> None:
        """Gives arrays to those workers that lack them, which write them over their own.

        Args:
          arrays: contiguous; dtypes and shapes are equal on all workers.
          has: whether each worker has them already, by rank.
        """
        blocks = [array.reshape(-1).view(np.uint8) for array in arrays]
        kinds, size = checksum_of((a.dtype, a.shape) for a in arrays), sum(map(len, blocks))
        with self._one_at_a_time():
            self._flat.give(blocks, has, self._stamp(kinds, size))

    def share(self, shared: Shared | None, links: Iterable[Link]) -> None:
        """From now on large sums go through the machine's memory; all workers call this.

        Args:
          shared: this machine's workers; None where nobody shares memory.
          links: all that this worker talks through.
        """
        self._shared = shared
        self._links |= {id(link): link for link in links}

    def compress(self, residuals: Residuals) -> None:
        """From now on large sums of gradients travel compressed; all workers call this.

        Args:
          residuals: keeps what is rounded off of this worker's.
        """
        self._residuals = residuals

    @property
    def stands(self) -> tuple[int, str, str]:
        """What it does with the others: its number, equal for the same thing, and in words."""
        return self._marks, *stamps.told(self._mark)

    @property
    def compression(self) -> str:
        """As what large sums of gradients travel; "" where they do not, or as they are."""
        return self._residuals.dtype.name if self.crosses and self._residuals is not None else ""

    @property
    def crosses(self) -> bool:
        """True where large sums go through connections: not all workers share memory."""
        return self.world > 1 and (self._shared is None or len(self._shared.machines) > 1)

    @property
    def sent_bytes(self) -> int:
        """Through this worker's connections, in all."""
        return sum(link.sent for link in self._links.values())

    @property
    def shares_memory(self) -> bool:
        """True where large sums go through memory: somewhere two workers share a machine."""
        return self._shared is not None

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
        """Ends the connections, and lets go of the memory that the workers share."""
        # As a new error: an old one holds what was on the stack, and that memory with it.
        self._over = again(self._over or PeerGone(self.rank, "has left"))
        for link in self._links.values():
            link.close()
        self._shared = None

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

    def _all_reduce(
        self,
        parts: Sequence[Sequence[NDArray]],
        holding: Holding,
        gradients: Gradients | None = None,
        dtypes: Sequence[np.dtype] | None = None,
    ) -> list[NDArray]:
        if len(parts) != len(holding.nodes[self.rank]):
            raise ValueError(
                f"{len(parts)} parts, expected one for each of {holding.nodes[self.rank]}"
            )
        compresses = gradients is not None and self._residuals is not None
        layout = layout_of(parts[0], gradients.which if gradients and compresses else (), dtypes)
        checksum = layout.checksum ^ holding.checksum
        with self._one_at_a_time():
            if self.world == 1 and holding.replicas > 1:  # an `Adder` has made it: nobody else's
                self.counts.sums += len(layout.packs)
                return [
                    total.astype(place.dtype, copy=False)
                    for total, place in zip(parts[0], layout.places, strict=True)
                ]
            packs = self._packer.empty(layout)
            for i, numbers in enumerate(packs):
                owns = [PackingReader(tensors, layout, i) for tensors in parts]
                compressed = None
                if gradients is not None and i == layout.compressed:
                    compressed = self._compressed(gradients, numbers, holding)
                mark = self._stamp(checksum, numbers.nbytes)
                self._sum(numbers, owns, holding, mark, compressed)
                self.counts.copied_bytes += sum(own.copied_bytes for own in owns)
        return self._packer.unpack(packs, layout)

    def _compressed(
        self, gradients: Gradients, numbers: NDArray, holding: Holding
    ) -> Compressed | None:
        """How they travel from this worker; None where they do not, or as they are."""
        sends = self._shared.crosses if self._shared is not None else self.world > 1
        if self._residuals is None or not sends or self._small(numbers, holding):
            return None
        self.counts.compressed += 1
        return self._residuals.begin(gradients.name, gradients.version, len(numbers))

    def _small(self, numbers: NDArray, holding: Holding) -> bool:
        """Whether all get all, who then all add it up."""
        size, most = numbers.nbytes, SMALL_ARRAYS * self.small_bytes
        return size <= self.small_bytes and size * holding.travelling <= most

    def _sum(
        self,
        numbers: NDArray,
        owns: Sequence[Own],
        holding: Holding,
        mark: bytes,
        compressed: Compressed | None = None,
    ) -> None:
        self.counts.sums += 1
        if self.world == 1:
            owns[0].fill(numbers, 0)
        elif self._small(numbers, holding):
            self._flat.sum_small(numbers, owns, holding.nodes, mark)
        elif self._shared is not None:
            self._shared.sum_large(numbers, owns, holding, mark, compressed)
        else:
            self._flat.sum_large(numbers, owns, holding.nodes, mark, compressed)

    def _all_gather(
        self, parts: Sequence[Sequence[NDArray]], holding: Holding
    ) -> list[list[NDArray]]:
        mine = holding.held[self.rank]
        kinds = [(tensor.dtype, tensor.ndim) for tensor in parts[0]]
        checksum = checksum_of(kinds) ^ holding.checksum
        with self._one_at_a_time():
            shapes = self._shapes(parts, holding, checksum)
            blocks = Blocks([dtype for dtype, _ in kinds], shapes)
            sizes = [[blocks.sizes[replica] for replica in own] for own in holding.held]
            ends = [[0, *itertools.accumulate(own)] for own in sizes]

            def fill(block: NDArray[np.uint8]) -> None:
                for i, (replica, tensors) in enumerate(zip(mine, parts, strict=True)):
                    blocks.fill(replica, block[ends[self.rank][i] :], tensors)

            mark = self._stamp(checksum, sum(blocks.sizes))
            found = self._flat.gather([own[-1] for own in ends], fill, mark)
        tensors = {
            replica: blocks.tensors(replica, found[rank][begin:])
            for rank, own in enumerate(holding.held)
            for replica, begin in zip(own, ends[rank], strict=False)
        }
        return [[tensors[replica][i] for replica in sorted(tensors)] for i in range(len(kinds))]

    def _shapes(
        self, parts: Sequence[Sequence[NDArray]], holding: Holding, checksum: int
    ) -> list[list[tuple[int, ...]]]:
        """Each replica's shapes."""
        lengths = [tensor.ndim for tensor in parts[0]]
        mine = [size for tensors in parts for tensor in tensors for size in tensor.shape]

        def fill(block: NDArray[np.uint8]) -> None:
            block.view(np.int64)[:] = mine

        sizes = [8 * sum(lengths) * len(own) for own in holding.held]
        found = self._flat.gather(sizes, fill, self._stamp(checksum, sum(sizes)))
        shapes: dict[int, list[tuple[int, ...]]] = {}
        for own, block in zip(holding.held, found, strict=True):
            rows = block.view(np.int64).reshape(len(own), sum(lengths)).tolist()
            for replica, row in zip(own, rows, strict=True):
                sizes_left = iter(row)
                shapes[replica] = [tuple(itertools.islice(sizes_left, n)) for n in lengths]
        return [shapes[replica] for replica in range(holding.replicas)]

    def _stamp(self, checksum: int, size: int) -> bytes:
        self._marks += 1
        self._mark = stamp(self.counts.collectives, checksum, size)
        return self._mark
