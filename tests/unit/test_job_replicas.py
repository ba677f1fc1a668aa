"""Which replicas each worker holds."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.job.replicas import by_default, held, partial_sums
from tfrun.job.spec import JobSpec, Program, WorkerRange


@pytest.mark.parametrize(
    ("replicas", "workers", "wanted"),
    [
        (4, 1, [[0, 1, 2, 3]]),
        (4, 2, [[0, 1], [2, 3]]),
        (4, 3, [[0, 1], [2], [3]]),
        (4, 4, [[0], [1], [2], [3]]),
        (6, 4, [[0, 1], [2, 3], [4], [5]]),
        (7, 3, [[0, 1], [2, 3], [4, 5, 6]]),  # [4, 7) is a node, [0, 3) is not
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
    ],
)
def test_by_hand(replicas: int, workers: int, wanted: list[list[int]]) -> None:
    assert [list(block) for block in held(replicas, workers)] == wanted


jobs = st.integers(1, 12).flatmap(
    lambda workers: st.tuples(st.integers(workers, 24), st.just(workers))
)


@given(jobs)
def test_each_replica_is_held_once_in_the_order_of_the_ranks(job: tuple[int, int]) -> None:
    blocks = held(*job)
    assert list(itertools.chain(*blocks)) == list(range(job[0]))
    sizes = [len(block) for block in blocks]
    assert len(sizes) == job[1] and 1 <= min(sizes) <= max(sizes) <= min(sizes) + 1


@given(jobs)
def test_no_other_even_division_has_fewer_partial_sums(job: tuple[int, int]) -> None:
    replicas, workers = job
    small, larger = divmod(replicas, workers)

    def sums(ends: list[int]) -> int:
        return sum(partial_sums(a, b, replicas) for a, b in itertools.pairwise([0, *ends]))

    fewest = min(
        sums(list(itertools.accumulate(small + (rank in chosen) for rank in range(workers))))
        for chosen in itertools.combinations(range(workers), larger)
    )
    assert sums([block.stop for block in held(replicas, workers)]) == fewest


@given(jobs, st.data())
def test_workers_keep_what_they_are_to_keep_where_all_can(job: tuple[int, int], data: Any) -> None:
    replicas, workers = job
    ends = sorted(data.draw(st.lists(st.integers(0, replicas), min_size=2 * workers)))
    kept = tuple(range(ends[2 * i], ends[2 * i + 1]) for i in range(workers))
    found = held(replicas, workers, kept)
    if not found:
        small, larger = divmod(replicas, workers)
        every = (
            list(itertools.accumulate(small + (rank in chosen) for rank in range(workers)))
            for chosen in itertools.combinations(range(workers), larger)
        )
        assert not any(
            all(
                set(own) <= set(range(a, b))
                for own, (a, b) in zip(kept, itertools.pairwise([0, *ends]), strict=True)
            )
            for ends in every
        )
        return
    assert all(set(own) <= set(block) for own, block in zip(kept, found, strict=True))
    sizes = [len(block) for block in found]
    assert list(itertools.chain(*found)) == list(range(replicas))
    assert max(sizes) <= min(sizes) + 1


@pytest.mark.parametrize(
    ("kept", "wanted"),
    [
        ([[0], [1], [3]], [[0], [1], [2, 3]]),
        ([[0], [2], [3]], [[0, 1], [2], [3]]),
        ([[1], [2], [3]], [[0, 1], [2], [3]]),
        ([[0], [], [1]], None),
        ([[], [], []], [[0, 1], [2], [3]]),
    ],
)
def test_what_is_kept_by_hand(kept: list[list[int]], wanted: list[list[int]] | None) -> None:
    ranges = tuple(range(own[0], own[-1] + 1) if own else range(0) for own in kept)
    assert [list(block) for block in held(4, 3, ranges)] == (wanted or [])


def test_a_worker_without_a_replica_is_refused() -> None:
    with pytest.raises(ValueError, match="got 3 and 2"):
        held(2, 3)


def test_partial_sums_are_nodes_of_the_tree() -> None:
    assert [partial_sums(0, end, 6) for end in range(1, 7)] == [1, 1, 2, 1, 2, 1]
    assert partial_sums(4, 6, 6) == 1  # what is left behind the largest power of two
    assert partial_sums(1, 5, 8) == 3


@pytest.mark.parametrize(
    ("workers", "more", "wanted"),
    [
        ("4", {}, 0),
        ("4", {"in_place": True}, 4),
        ("4", {"in_place": True, "replicas": 8}, 0),
        ("4", {"in_place": True, "preferred": "ring"}, 0),
        ("2:4", {}, 4),
        ("2:4", {"replicas": 8}, 0),
        ("2:4", {"ps": 1}, 0),
        ("2:4", {"strategy": "script"}, 0),
        ("2:4", {"communication": "ring"}, 0),
        ("2:4", {"communication": "nccl"}, 0),
        ("2:4", {"communication": "host", "preferred": "ring"}, 4),
        ("2:4", {"preferred": "ring"}, 0),
    ],
)
def test_where_workers_come_and_go_there_are_as_many_as_there_may_be(
    workers: str, more: dict, wanted: int
) -> None:
    job = JobSpec(program=Program(target="train.py"), workers=WorkerRange.parse(workers), **more)
    assert by_default(job) == wanted
