"""The collective of a round's workers: the sums and gathers that the code above calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.asking import Asking
from tfrun.collective.compress import Compressed, Residuals
from tfrun.collective.counts import Gradients
from tfrun.collective.duplex_transfer import Own, Pump
from tfrun.collective.in_turn import InTurn
from tfrun.collective.links import Link, Patience
from tfrun.collective.owned_parts import OwnedParts, owned_parts
from tfrun.collective.packing import Blocks, Packer, PackingReader, layout_of
from tfrun.collective.shared_memory_sums import Shared
from tfrun.collective.stamps import checksum_of
from tfrun.collective.summation_order import Holding
from tfrun.collective.tcp_sums import Flat

# Up to there messages cost more than bytes, and among many workers up to so many times as many.
SMALL_BYTES, SMALL_ARRAYS = 64 << 10, 16


# The next round's sums are in the memory of this one's.
_packer = Packer()


def keep_memory(size: int) -> None:
    """Has memory for sums of so many bytes: fresh memory comes from the kernel page by page."""
    held = [_packer.arrays([(np.dtype(np.uint8), size)])[0] for _ in range(2)]  # of two steps
    for array in held:
        array.fill(0)


class Collective(InTurn):
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
      asking: by what one worker asks another one, beside collectives; None where it is alone.
    """

    def __init__(
        self, rank: int, links: Mapping[int, Link], world: int, patience: Patience | None = None
    ) -> None:
        super().__init__(rank, links)
        self.world = world
        self.small_bytes = SMALL_BYTES
        self._each = self._holding = Holding(tuple((other,) for other in range(world)))
        self._flat = Flat(rank, links, world, Pump(patience or Patience()))
        self._packer = _packer
        self._shared: Shared | None = None
        self._residuals: Residuals | None = None
        self.asking: Asking | None = None

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

    def sum_owned(self, tensors: Sequence[NDArray], owners: Sequence[int]) -> list[NDArray | None]:
        """Sums each tensor over the workers for its owner alone; bit for bit as `all_reduce`.

        Args:
          tensors: as for `all_reduce`.
          owners: the rank of each one's; equal on all workers.

        Returns:
          The sums of what this worker owns, and None in place of the others.

        Raises:
          As `all_reduce`.
        """
        found: list[NDArray | None] = [None] * len(tensors)
        with self._one_at_a_time():
            parts = owned_parts([t.shape for t in tensors], [t.dtype for t in tensors], owners)
            for i, own in enumerate(self._owns(tensors, parts)):
                bounds, nodes = parts.bounds(i, self.world), self._each.nodes
                dtype, length = parts.layout.packs[i]
                begin, end = bounds[self.rank], bounds[self.rank + 1]
                mark = self._stamp(parts.checksum, length * dtype.itemsize)
                if self._goes_apart(length * dtype.itemsize):
                    self.counts.sums += 1
                    (mine,) = self._packer.arrays([(dtype, end - begin)])
                    if self._shared is not None:
                        self._shared.sum_owned(mine, bounds, [own], self._each, mark)
                    else:
                        self._flat.sum_owned(mine, bounds, [own], nodes, mark)
                else:
                    (whole,) = self._packer.arrays([(dtype, length)])
                    self._sum(whole, [own], self._each, mark)
                    mine = whole[begin:end]
                self.counts.copied_bytes += own.copied_bytes
                parts.unpack(i, self.rank, mine, found)
        return found

    def give_owned(self, tensors: Sequence[NDArray], owners: Sequence[int]) -> list[NDArray | None]:
        """Gives each tensor of its owner to all others, bit for bit.

        Args:
          tensors: as for `all_reduce`; what they hold counts on their owners alone.
          owners: the rank of each one's; equal on all workers.

        Returns:
          What others own, and None in place of this worker's own. They may share memory.

        Raises:
          As `all_reduce`.
        """
        found: list[NDArray | None] = [None] * len(tensors)
        with self._one_at_a_time():
            parts = owned_parts([t.shape for t in tensors], [t.dtype for t in tensors], owners)
            for i, own in enumerate(self._owns(tensors, parts)):
                bounds = parts.bounds(i, self.world)
                dtype, length = parts.layout.packs[i]
                sizes = [end - begin for begin, end in itertools.pairwise(bounds)]
                mark = self._stamp(parts.checksum, length * dtype.itemsize)
                if self._goes_apart(length * dtype.itemsize):
                    kinds = [(dtype, 0 if k == self.rank else n) for k, n in enumerate(sizes)]
                    theirs = self._packer.arrays(kinds)
                    if self._shared is not None:
                        self._shared.give_owned(theirs, own, bounds, self._each, mark)
                    else:
                        self._flat.give_owned(theirs, own, bounds, mark)
                else:
                    blocks = self._flat.gather(
                        [size * dtype.itemsize for size in sizes],
                        lambda block, own=own, dtype=dtype, bounds=bounds: own.fill(
                            block.view(dtype), bounds[self.rank]
                        ),
                        mark,
                    )
                    theirs = [block.view(dtype) for block in blocks]
                self.counts.copied_bytes += own.copied_bytes
                for rank, block in enumerate(theirs):
                    if rank != self.rank:
                        parts.unpack(i, rank, block, found)
        return found

    def _owns(self, tensors: Sequence[NDArray], parts: OwnedParts) -> list[PackingReader]:
        mine = [tensors[k] for k in parts.order]
        return [PackingReader(mine, parts.layout, i) for i in range(len(parts.layout.packs))]

    def _goes_apart(self, size: int) -> bool:
        """Whether so many bytes travel to and from their owners alone."""
        holds_all = self._shared is None or self._shared.holds_all
        return self.world > 1 and holds_all and size > self.small_bytes

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
        is_root = self.rank == root
        made = np.array(tensor, order="C") if is_root else np.empty(tensor.shape, tensor.dtype)
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
    def compression(self) -> str:
        """As what large sums of gradients travel; "" where they do not, or as they are."""
        return self._residuals.dtype.name if self.crosses and self._residuals is not None else ""

    @property
    def crosses(self) -> bool:
        """True where large sums go through connections: not all workers share memory."""
        return self.world > 1 and (self._shared is None or len(self._shared.machines) > 1)

    @property
    def shares_memory(self) -> bool:
        """True where large sums go through memory: somewhere two workers share a machine."""
        return self._shared is not None

    def close(self) -> None:
        """Ends the connections, and lets go of the memory that the workers share."""
        super().close()
        self._shared = None

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
