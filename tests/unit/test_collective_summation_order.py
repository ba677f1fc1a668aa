"""The order of adding up depends on the number of replicas alone, whoever holds which."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.collective.packing import sum_dtype
from tfrun.collective.summation_order import Adder, Holding, Node, add_up, children, maximal_nodes

DTYPES = ["float32", "float64", "float16", "int32", ml_dtypes.bfloat16]


@st.composite
def holdings(draw: st.DrawFn, workers: int = 0) -> Holding:
    """So many workers, or any number: who holds which replicas, neighbours or anyone."""
    workers = workers or draw(st.integers(1, 9))
    others = draw(st.lists(st.integers(0, workers - 1), max_size=11))
    owners = [*range(workers), *others]
    owners = sorted(owners) if draw(st.booleans()) else draw(st.permutations(owners))
    everyone = range(len(owners))
    return Holding(tuple(tuple(r for r in everyone if owners[r] == w) for w in range(workers)))


def values(replicas: int, dtype: object, seed: int, length: int = 40) -> list[np.ndarray]:
    """Numbers of which every order of adding up gives other bits."""
    random = np.random.default_rng(seed)
    scale = 10.0 ** random.integers(-3, 4, (replicas, length))
    return [*(random.standard_normal((replicas, length)) * scale).astype(dtype)]


def balanced(numbers: list[np.ndarray]) -> np.ndarray:
    """The sum as the rule says it."""
    if len(numbers) == 1:
        return numbers[0]
    half = max(1 << k for k in range(20) if 1 << k < len(numbers))
    return balanced(numbers[:half]) + balanced(numbers[half:])


@given(holding=holdings(), dtype=st.sampled_from(DTYPES), data=st.data(), seed=st.integers(0, 99))
def test_the_bits_do_not_depend_on_who_holds_what(
    holding: Holding, dtype: object, data: st.DataObject, seed: int
) -> None:
    tensors = values(holding.replicas, dtype, seed)
    before = [tensor.copy() for tensor in tensors]
    parts: dict[Node, np.ndarray] = {}
    for held, nodes in zip(holding.held, holding.nodes, strict=True):
        adder, taken = Adder(holding.replicas), []
        for _ in range(2):  # a second step, on memory that is used again
            for replica in data.draw(st.permutations(held)):
                adder.add(replica, [tensors[replica], tensors[replica][:3].reshape(3, 1)])
            taken = adder.take()
        assert adder.dtypes == [np.dtype(dtype)] * 2
        assert all((short[:, 0] == long[:3]).all() for long, short in taken)
        parts |= zip(nodes, [long.astype(sum_dtype(long.dtype)) for long, _ in taken], strict=True)
    wide = [tensor.astype(sum_dtype(tensor.dtype)) for tensor in tensors]
    found = add_up(holding.root, parts, np.empty_like(wide[0]))
    assert found.tobytes() == balanced(wide).tobytes()
    # What came in is not written to.
    assert [t.tobytes() for t in tensors] == [t.tobytes() for t in before]


@given(holdings())
def test_maximal_nodes_are_the_fewest_that_make_up_what_is_held(holding: Holding) -> None:
    for held, nodes in zip(holding.held, holding.nodes, strict=True):
        assert tuple(r for node in nodes for r in range(*node)) == held
        parents = [children(node) for node in tree((0, holding.replicas))]
        assert not any(left in nodes and right in nodes for left, right in parents)


def tree(node: Node) -> list[Node]:
    """All nodes below one, and it, that have children."""
    return [] if node[1] - node[0] == 1 else [node, *(n for c in children(node) for n in tree(c))]


def test_the_tree_over_seven() -> None:
    assert children((0, 7)) == ((0, 4), (4, 7)) and children((4, 7)) == ((4, 6), (6, 7))
    assert maximal_nodes([2, 3, 4, 5], 7) == [(2, 4), (4, 6)]
    assert maximal_nodes(range(7), 7) == [(0, 7)]


def test_few_sums_are_kept_at_a_time() -> None:
    adder = Adder(64)
    for replica in range(64):
        adder.add(replica, [np.ones(3)])
        assert len(adder._sums) == (replica + 1).bit_count()


@pytest.mark.parametrize("held", [[[0, 2]], [[0], [0, 1]], [[0, 1], []]])
def test_each_replica_has_one_worker(held: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="not each replica held once, or a worker without one"):
        Holding(tuple(map(tuple, held)))
