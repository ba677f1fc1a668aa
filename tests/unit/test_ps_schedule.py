"""When a step on parameter servers may begin, and who reads the next element of a pipeline."""

from __future__ import annotations

import random

import pytest

from tfrun.ps.reading_turns import Turns
from tfrun.ps.staleness import AHEAD, Flight, may_begin

RING = 50


def begins(flight: Flight, number: int, bound: int | None, workers: int = 4) -> bool:
    return may_begin(flight, number, workers=workers, max_staleness=bound, ring=RING)


@pytest.mark.parametrize("bound", [0, 1, 2, 5, None])
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_no_order_of_endings_exceeds_the_bound(bound: int | None, workers: int) -> None:
    drawn = random.Random(0)
    flight, number, worst = Flight(), 0, 0
    for _ in range(3000):
        while begins(flight, number, bound, workers):
            flight, number = flight.begins(number), number + 1
        assert flight.begun, "nothing in flight, and nothing may begin"
        assert len(flight.begun) <= AHEAD * workers
        assert max(flight.begun) - min(flight.begun) < RING
        # The newest first, mostly: that is what makes the others late.
        ended = max(flight.begun) if drawn.random() < 0.9 else drawn.choice(list(flight.begun))
        worst = max(worst, flight.applied - flight.begun[ended])
        flight = flight.ends(ended)
    if bound is not None:
        assert worst <= bound
        assert worst == min(bound, worst)
    if bound in (1, 2) and workers > 1:
        assert worst == bound, "the bound is used"


def test_one_at_a_time_without_staleness() -> None:
    flight = Flight()
    assert begins(flight, 0, 0)
    assert not begins(flight.begins(0), 1, 0)
    assert begins(flight.begins(0).ends(0), 1, 0)


def test_a_step_that_never_ends_holds_the_others_within_the_ring() -> None:
    flight = Flight().begins(0)
    assert begins(flight, RING - 1, None)
    assert not begins(flight, RING, None)


def test_a_pipeline_ends_when_all_workers_have_read_theirs() -> None:
    turns = Turns(2, None)
    assert turns.take(0) and turns.take(1)
    turns.ends(0)
    turns.exhausts(1)
    assert not turns.over and not turns.take(1)
    assert turns.take(0)
    turns.exhausts(0)
    assert turns.over


def test_an_element_that_has_failed_comes_again_before_the_pass_is_over() -> None:
    turns = Turns(2, 3)
    assert turns.take(0) and turns.take(1)
    turns.ends(1)
    assert turns.take(1), "the third"
    turns.ends(1)
    assert not turns.take(1), "what is left is worker 0's"
    assert not turns.over and turns.open == 1
    turns.close()
    assert turns.take(0), "also when no other may begin"
    turns.ends(0)
    assert turns.over and not turns.open


def test_who_had_none_left_has_not_used_up_the_quota() -> None:
    turns = Turns(2, 1)
    assert turns.take(0)
    turns.exhausts(0)
    assert not turns.over and turns.take(1)


def test_after_a_pause_elements_begin_again() -> None:
    turns = Turns(1, 2)
    turns.close()
    assert not turns.take(0)
    turns.reopen()
    assert turns.take(0)
