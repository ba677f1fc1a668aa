"""Who updates which weight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfrun.engine.shard_owners import owners_of


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 9))
def test_nobody_has_much_more_than_has_to_be(sizes: list[int], workers: int) -> None:
    owners = owners_of(sizes, workers)
    loads = [sum(s for s, o in zip(sizes, owners, strict=True) if o == r) for r in range(workers)]
    least = max([*sizes, sum(sizes) / workers])
    assert len(owners) == len(sizes) and max(loads) <= 2 * least
    assert owners == owners_of(list(sizes), workers)


def test_an_encoder_is_divided_evenly() -> None:
    table, blocks = [23_440_896], [589_824, 589_824, 589_824, 589_824, 2_359_296, 2_359_296] * 12
    for workers in (2, 4):
        owners = owners_of(table + blocks, workers)
        loads = [0] * workers
        for size, owner in zip(table + blocks, owners, strict=True):
            loads[owner] += size
        assert max(loads) < 1.01 * sum(loads) / workers
