"""Shares of a global batch, and positions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.data.order.position import Position
from tfrun.data.order.shards import (
    constant_share,
    share,
    share_of_step,
    steps_per_epoch,
)

counts = st.integers(0, 10_000)
sizes = st.integers(1, 300)


@given(counts, sizes)
def test_shares_follow_each_other_and_cover_everything(count, size):
    parts = [share(count, rank, size) for rank in range(size)]
    assert parts[0][0] == 0
    assert parts[-1][1] == count
    assert all(before[1] == after[0] for before, after in itertools.pairwise(parts))
    lengths = [end - begin for begin, end in parts]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


@given(st.integers(1, 2000), st.integers(1, 400), st.integers(1, 40))
def test_an_epoch_has_every_position_once_whatever_the_number_of_workers(samples, batch, size):
    seen = []
    for step in range(steps_per_epoch(samples, batch)):
        begin, end = share_of_step(step, samples, batch, 0, 1)
        assert 0 < end - begin <= batch
        here = [
            p for r in range(size) for p in range(*share_of_step(step, samples, batch, r, size))
        ]
        assert here == list(range(begin, end))
        seen += here
    assert seen == list(range(samples))


@given(st.integers(1, 500), st.integers(1, 100), st.integers(1, 12))
def test_a_constant_share_is_what_every_replica_has_in_every_step(samples, batch, size):
    lengths = {
        end - begin
        for step in range(steps_per_epoch(samples, batch))
        for rank in range(size)
        for begin, end in [share_of_step(step, samples, batch, rank, size)]
    }
    stated = constant_share(samples, batch, size)
    if stated is not None:
        assert lengths == {stated}
    elif samples > batch:
        assert len(lengths) > 1


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_a_position_is_a_number_of_steps(count, steps):
    position = Position.of(count, steps)
    assert 0 <= position.step < steps
    assert position.count(steps) == count


@pytest.mark.parametrize(
    ("position", "expected"),
    [(Position(epoch=3), 3), (Position(epoch=3, step=1), 4), (Position(), 0)],
)
def test_the_next_epoch_is_this_one_where_it_has_not_begun(position, expected):
    assert position.next_epoch() == Position(epoch=expected)
