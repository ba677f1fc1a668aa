"""Groups of batches: together they are every element once, in the pipeline's order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrun.data.order.groups import Groups
from tfrun.data.order.shards import Replicas, share_of_step, steps_per_epoch


@st.composite
def cases(draw):
    samples = draw(st.integers(1, 90))
    batch = draw(st.integers(1, samples))
    count, pipelines = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    steps = steps_per_epoch(samples, batch)
    start = draw(st.integers(0, 4 * steps))
    return Groups(
        samples=samples,
        batch=batch,
        replicas=Replicas(
            first=count * draw(st.integers(0, pipelines - 1)),
            count=count,
            total=count * pipelines,
        ),
        size=draw(st.integers(0, 7)),
        start=start,
        stop=start + draw(st.integers(1, 3 * steps)),
    )


@given(cases())
@settings(max_examples=400)
def test_the_groups_are_the_elements_in_order(groups):
    found = [
        (group.epoch, element.tolist())
        for group in map(groups.group, range(*groups.numbers))
        for element in groups.positions(group)
    ]
    expected = []
    for number in range(groups.start, groups.stop):
        epoch, step = divmod(number, groups.steps)
        mine = groups.replicas
        for replica in range(mine.first, mine.first + mine.count):
            share = share_of_step(step, groups.samples, groups.batch, replica, mine.total)
            expected.append((epoch, list(range(*share))))
    assert found == expected


@given(cases(), st.integers(1, 200))
@settings(max_examples=200)
def test_a_block_holds_the_groups_that_say_so(groups, indices):
    for group in map(groups.group, range(*groups.numbers)):
        block = groups.block(group, indices)
        if group.last <= group.first:
            continue
        assert block.first <= group.first
        assert group.last <= block.last
        begin = (group.first - block.first) * group.replicas
        end = (group.last - block.first) * group.replicas
        rows = groups.positions(block)[begin:end]
        assert np.array_equal(rows, groups.positions(group))


def test_the_first_group_is_one_step():
    groups = Groups(samples=6400, batch=64, replicas=Replicas(), size=16, start=230, stop=1000)
    begin, _ = groups.numbers
    spans = [(g.epoch, g.first, g.last) for g in map(groups.group, range(begin, begin + 4))]
    assert spans == [(2, 30, 31), (2, 31, 32), (2, 32, 48), (2, 48, 64)]


@pytest.mark.parametrize("size", [1, 16])
def test_a_stream_without_an_end_has_numbers(size):
    groups = Groups(
        samples=60_000,
        batch=64,
        replicas=Replicas(count=2, total=8),
        size=size,
        start=0,
        stop=1 << 62,
    )
    assert groups.numbers[1] < 1 << 63
