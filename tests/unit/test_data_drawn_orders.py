"""Orders that data draws come out as they did, whoever else has drawn in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tfrun.data import global_random
from tfrun.data.drawn_orders import DrawnOrders, give
from tfrun.state import plain_data

Draw = Callable[[], object]
DRAWS: dict[str, Draw] = {
    "python": random.random,
    "numpy": np.random.rand,
    "both": lambda: (random.random(), np.random.rand()),
    "nothing": lambda: None,
}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = global_random.take()
    random.seed(1)
    np.random.seed(1)
    yield
    global_random.give(before)


def orders(drawn: DrawnOrders, data: list[Draw], others: list[Draw]) -> list[object]:
    """What the data draws, with what others draw before each of it."""
    found = []
    for draw, other in zip(data, others, strict=True):
        other()
        with drawn.draws():
            found.append(draw())
    return found


NOBODY = [DRAWS["nothing"]] * 6


@pytest.mark.parametrize("other", DRAWS)
@pytest.mark.parametrize("data", [name for name in DRAWS if name != "nothing"])
@pytest.mark.parametrize("where", range(6))
def test_who_passes_by_draws_what_was_drawn(data, other, where):
    mine = [DRAWS["nothing"] if i == 2 else DRAWS[data] for i in range(6)]
    others = [DRAWS[other] if i in (where, 3) else DRAWS["nothing"] for i in range(6)]
    began, first = global_random.take(), DrawnOrders()
    expected = orders(first, mine, others)
    arrays: dict = {}
    kept = plain_data.encode(first.known, arrays, "orders")
    ended = global_random.take()
    global_random.give(began)
    again = DrawnOrders()
    again.know(plain_data.decode(kept, arrays))
    with again.replays():
        assert orders(again, mine, NOBODY) == expected
    # And it knows as much as the first one, of what comes then as well.
    for one in (first, again):
        global_random.give(ended)
        np.random.rand()
        with one.draws():
            np.random.rand()
    assert [each[:2] for each in first.known] == [each[:2] for each in again.known]


@pytest.mark.parametrize("data", DRAWS)
def test_nothing_is_kept_where_nobody_else_draws(data):
    drawn = DrawnOrders()
    orders(drawn, [DRAWS[data]] * 6, NOBODY)
    assert not drawn.known


def test_generators_of_the_script_may_come_to_be_known_in_between(monkeypatch):
    for name in ("_own", "_first", "_later"):
        monkeypatch.setattr(global_random, name, {})
    one, other = random.Random(1), random.Random(2)
    drawn = DrawnOrders()
    global_random.know("one", one)
    with drawn.draws():
        one.random()
    assert [each[:2] for each in drawn.known] == [(0, global_random.OF_SCRIPT)]
    left, now = drawn.left, one.getstate()
    global_random.know("other", other)
    other.random()
    there = other.getstate()
    one.random()
    give(left)
    assert one.getstate() == now and other.getstate() == there


def test_what_is_drawn_anew_takes_the_place_of_what_an_earlier_run_knew():
    drawn = DrawnOrders()
    drawn.know([(0, 0, "of earlier"), (1, 0, "of earlier")])
    with drawn.draws():
        random.random()
    assert drawn.known == [(1, 0, "of earlier")]
    drawn.know([(1, 0, "newer")])
    assert drawn.known == [(1, 0, "newer")]
