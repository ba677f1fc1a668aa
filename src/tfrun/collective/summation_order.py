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
        node, sums = (replica, replica + 1), list(tensors)
        while node in self._relatives and self._relatives[node][0] in self._sums:
            sibling, parent = self._relatives[node]
            pairs = {node: sums, sibling: self._sums.pop(sibling)}
            sums = self._added(pairs)
            self._own -= pairs.keys()
            self._own.add(parent)
            node = parent
        self._sums[node] = sums

    def take(self) -> list[list[NDArray]]:
        """The sums of the maximal nodes of what has come, ascending; begins anew."""
        taken = [self._sums[node] for node in sorted(self._sums)]
        self._sums, self._own = {}, set()
        return taken

    def _added(self, pairs: Mapping[Node, Sequence[NDArray]]) -> list[NDArray]:
        (_, first), (_, second) = sorted(pairs.items())
        mine = next((pairs[node] for node in pairs if node in self._own), None)
        if mine is None:
            layout = layout_of(first)
            mine = layout.views(self._packer.empty(layout))
        return [
            np.add(a, b, out=out, dtype=out.dtype)
            for a, b, out in zip(first, second, mine, strict=True)
        ]
