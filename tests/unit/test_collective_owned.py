"""Sums for their owners alone, and what owners give to all, against the all-reduce's bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_collective_sums import at_once, bits, collectives

from tfrun.collective.owned_parts import owned_parts

SHAPES = [(300, 700), (7,), (), (40_000,), (0,), (1, 3), (513, 129), (64, 64)]
WAYS = [(), (2,), (3,), (2, 1), (4,)]
WORLDS = {(): 3, (2,): 2, (3,): 3, (2, 1): 3, (4,): 4}


@pytest.fixture(scope="module", params=WAYS, ids=str)
def groups(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list]:
    machines = request.param
    folder = str(tmp_path_factory.mktemp("memory"))
    with collectives(WORLDS[machines], machines=machines, folder=folder) as found:
        yield found


def tensors_of(rank: int, scale: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(rank)
    kinds = ["float32", "float32", "float64", "float16", "float32", "int64", "float32", "float32"]
    return [
        (rng.standard_normal(shape) * 100 * scale).astype(kind)
        for shape, kind in zip(SHAPES, kinds, strict=True)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_owners_get_the_bits_of_the_all_reduce(groups: list, seed: int) -> None:
    world = len(groups)
    owners = np.random.default_rng(seed).integers(0, world, len(SHAPES)).tolist()
    if seed == 0:
        owners = [world - 1] * len(SHAPES)  # the others own nothing

    def both(rank: int) -> tuple[list, list]:
        mine = tensors_of(rank, seed + 1)
        whole = groups[rank].all_reduce(mine)
        return whole, groups[rank].sum_owned(mine, owners)

    for rank, (whole, owned) in enumerate(at_once([lambda r=r: both(r) for r in range(world)])):
        for i, owner in enumerate(owners):
            assert (owned[i] is not None) == (owner == rank)
            if owner == rank:
                assert owned[i].dtype == whole[i].dtype
                assert bits([owned[i]]) == bits([whole[i]])


@pytest.mark.parametrize("seed", range(4))
def test_all_get_what_owners_have(groups: list, seed: int) -> None:
    world = len(groups)
    owners = np.random.default_rng(seed).integers(0, world, len(SHAPES)).tolist()
    if seed == 0:
        owners = [0] * len(SHAPES)

    def give(rank: int) -> list:
        return groups[rank].give_owned(tensors_of(rank), owners)

    for rank, found in enumerate(at_once([lambda r=r: give(r) for r in range(world)])):
        for i, owner in enumerate(owners):
            if owner == rank:
                assert found[i] is None
            else:
                assert bits([found[i]]) == bits([tensors_of(owner)[i]])


def test_as_many_bytes_as_an_all_reduce(tmp_path_factory: pytest.TempPathFactory) -> None:
    shapes = [(1 << 18,)] * 6
    owners = [0, 0, 1, 1, 2, 2]
    with collectives(3) as groups:

        def sent(rank: int) -> tuple[int, int]:
            mine = [np.full(shape, rank, np.float32) for shape in shapes]
            groups[rank].all_reduce(mine)
            before = groups[rank].sent_bytes
            groups[rank].all_reduce(mine)
            middle = groups[rank].sent_bytes
            groups[rank].sum_owned(mine, owners)
            groups[rank].give_owned(mine, owners)
            return middle - before, groups[rank].sent_bytes - middle

        for whole, apart in at_once([lambda r=r: sent(r) for r in range(3)]):
            assert abs(apart - whole) < 1000  # stamps


def test_bounds_leave_room_for_who_owns_nothing() -> None:
    parts = owned_parts([(16,), (32,), (16,)], [np.dtype(np.float32)] * 3, [2, 0, 2])
    assert parts.order == (1, 0, 2)
    assert parts.bounds(0, 4) == [0, 32, 32, 64, 64]
