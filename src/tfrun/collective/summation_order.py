"""In which order the replicas' numbers are added up: it depends on how many replicas there are.

A sum of floats depends on the order, so the order may not depend on who holds what. It is that of
a binary tree over the replicas' numbers: a node [first, end) has its left child's sum added to its
right one's, and is split after the largest power of two of replicas that is less than all of them.
Whoever holds all replicas of a node can add them up alone; of what a worker holds only the sums of
its maximal nodes travel, and the result has the same bits as if each replica had its own worker.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tfrun.collective.packing import Packer, layout_of

Node = tuple[int, int]  # the first replica and the one after the last
BLOCK = 1 << 15  # numbers; what is between stays in a core's cache


def children(node: Node) -> tuple[Node, Node]:
    """The two halves of a node of more than one replica."""
    first, end = node
    middle = first + (1 << (end - first - 1).bit_length() - 1)
    return (first, middle), (middle, end)


def maximal_nodes(held: Iterable[int], replicas: int) -> list[Node]:
    """The largest nodes of the tree over `replicas` that some of them make, ascending."""
    mine, found = frozenset(held), list[Node]()

    def look(node: Node) -> None:
        there = [replica in mine for replica in range(*node)]
        if all(there):
            found.append(node)
        elif any(there):
            for child in children(node):
                look(child)

    look((0, replicas))
    return found


def sibling_and_parent(replicas: int) -> dict[Node, tuple[Node, Node]]:
    """Of each node but the root: with what it is added up, and to what."""
    found: dict[Node, tuple[Node, Node]] = {}
    parents: list[Node] = [(0, replicas)]
    for parent in parents:
        if parent[1] - parent[0] > 1:
            left, right = children(parent)
            found |= {left: (right, parent), right: (left, parent)}
            parents += [left, right]
    return found


def add_up(node: Node, parts: Mapping[Node, NDArray], out: NDArray) -> NDArray:
    """The sum of a node.

    Args:
      node: any.
      parts: sums of nodes that make it up; none is written to.
      out: gets the sum, unless `node` is one of the parts; shares no memory with them.

    Returns:
      `out`, or the part.
    """
    if node in parts:
        return parts[node]
    left, right = children(node)
    first = add_up(left, parts, out)
    second = add_up(right, parts, np.empty_like(out) if first is out else out)
    return np.add(first, second, out=out)


@dataclass(frozen=True)
class Holding:
    """Which replicas each worker holds: each replica has one worker, and each worker a replica.

    Attributes:
      held: the replicas' numbers, by rank.
    """

    held: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if sorted(sum(self.held, ())) != list(range(self.replicas)) or not all(self.held):
            raise ValueError(f"not each replica held once, or a worker without one: {self.held}")

    @functools.cached_property
    def replicas(self) -> int:
        return sum(map(len, self.held))

    @property
    def root(self) -> Node:
        return 0, self.replicas

    @functools.cached_property
    def checksum(self) -> int:
        """The same on two workers that know of the same one."""
        return zlib.crc32(repr(self.held).encode())

    @functools.cached_property
    def nodes(self) -> list[list[Node]]:
        """What travels from each worker, by rank."""
        return [self.nodes_of([rank]) for rank in range(len(self.held))]

    @functools.cached_property
    def travelling(self) -> int:
        """How many arrays make up a sum."""
        return sum(map(len, self.nodes))

    def nodes_of(self, ranks: Sequence[int]) -> list[Node]:
        """What travels from some workers that add up what they hold among themselves."""
        return maximal_nodes((r for rank in ranks for r in self.held[rank]), self.replicas)


class Adder:
    """Adds up one worker's replicas' tensors as they come, as far as they make whole nodes.

    Args:
      replicas: of all workers.

    Attributes:
      dtypes: of the tensors that came last. Those of low precision are added up in float32.
    """

    def __init__(self, replicas: int) -> None:
        self.dtypes: list[np.dtype] = []
        self._relatives = sibling_and_parent(replicas)
        self._packer = Packer()
        self._sums: dict[Node, list[NDArray]] = {}
        self._own: set[Node] = set()  # those that stand in memory of this one

    def add(self, replica: int, tensors: Sequence[NDArray]) -> None:
        """Takes a replica's tensors: they are kept, and not written to."""
        self.dtypes = [tensor.dtype for tensor in tensors]
        node = (replica, replica + 1)
        siblings: list[tuple[bool, list[NDArray]]] = []  # whether it is the left one, its sums
        mine: list[NDArray] | None = None
        while node in self._relatives and self._relatives[node][0] in self._sums:
            sibling, parent = self._relatives[node]
            sums = self._sums.pop(sibling)
            siblings.append((sibling < node, sums))
            if sibling in self._own:
                self._own.remove(sibling)
                mine = sums
            node = parent
        if not siblings:
            self._sums[node] = list(tensors)
            return
        if mine is None:
            layout = layout_of(tensors)
            mine = layout.views(self._packer.empty(layout))
        for i, (tensor, out) in enumerate(zip(tensors, mine, strict=True)):
            _add_all(tensor, [(left, sums[i]) for left, sums in siblings], out)
        self._sums[node] = mine
        self._own.add(node)

    def take(self) -> list[list[NDArray]]:
        """The sums of the maximal nodes of what has come, ascending; begins anew."""
        taken = self.sums()
        self.begin_anew()
        return taken

    def sums(self) -> list[list[NDArray]]:
        """As `take`; what comes next is added to them."""
        return [self._sums[node] for node in sorted(self._sums)]

    @property
    def count(self) -> int:
        """How many replicas' tensors have come."""
        return sum(end - begin for begin, end in self._sums)

    def begin_anew(self) -> None:
        """Forgets what has come, as that of a step that was cut off."""
        self._sums, self._own = {}, set()


def _add_all(leaf: NDArray, siblings: Sequence[tuple[bool, NDArray]], out: NDArray) -> None:
    """Adds up a leaf, its sibling, that of both, and so on.

    Little by little, so that what is between takes no memory.

    Args:
      leaf: the first numbers.
      siblings: the others, and whether each comes before what it is added to.
      out: gets the sum, contiguous; may be one of the siblings.
    """
    flat, total = out.reshape(-1), leaf.reshape(-1)
    others = [(left, sibling.reshape(-1)) for left, sibling in siblings]
    scratch = np.empty(min(len(flat), BLOCK) if len(others) > 1 else 0, flat.dtype)
    for begin in range(0, len(flat), BLOCK):
        part = slice(begin, begin + BLOCK)
        so_far, into = total[part], flat[part]
        for i, (left, sibling) in enumerate(others, 1):
            first, second = (sibling[part], so_far) if left else (so_far, sibling[part])
            room = into if i == len(others) else scratch[: len(into)]
            so_far = np.add(first, second, out=room, dtype=flat.dtype)
