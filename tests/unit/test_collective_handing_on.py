"""What some workers have goes to those that lack it."""

from __future__ import annotations

import itertools

import pytest

from tfrun.collective.handing_on import neighbours
from tfrun.collective.tcp_sums import partners


@pytest.mark.parametrize("count", range(1, 10))
def test_who_lacks_it_gets_it_once_from_one_that_has_it(count: int) -> None:
    for has in itertools.product([False, True], repeat=count):
        if not any(has):
            continue
        plan = [neighbours(rank, has) for rank in range(count)]
        given = [(rank, target) for rank, (_, targets) in enumerate(plan) for target in targets]
        gotten = [(source, rank) for rank, (source, _) in enumerate(plan) if source is not None]
        assert sorted(given) == sorted(gotten)
        assert sorted(target for _, target in given) == [r for r in range(count) if not has[r]]
        assert all(target in partners(rank, count) for rank, target in given)
        held = {rank for rank in range(count) if has[rank]}
        for _ in range(count):  # each one follows from one that has it
            held |= {target for rank, target in given if rank in held}
        assert held == set(range(count))
