"""What data that is made ahead has drawn from Python's and numpy's global generators."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from tfrun.data import global_random
from tfrun.data.global_random import Drawn


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (("any", False), ("surely", False), ("calls", (0, 0))):
        monkeypatch.setattr(Drawn, name, value)
    before = global_random.take()
    random.seed(1)
    np.random.seed(1)
    yield
    global_random.give(before)


def numbers() -> Iterator[tuple[float, float]]:
    while True:
        yield random.random(), float(np.random.rand())


def test_they_go_on_from_the_batch_that_a_step_had() -> None:
    drawn = Drawn()
    drawn.begins()
    batches = drawn.each(numbers())
    expected = [next(batches) for _ in range(5)]
    for step in (1, 3):  # the others were made ahead of their step
        state = drawn.before(step)
        assert state is not None
        global_random.give(state)
        assert [next(numbers()) for _ in range(step, 5)] == expected[step:]
    assert drawn.before(5) is None
    drawn.ends(3)  # left early: two batches are still to be given
    state = drawn.before(0)
    assert state is not None
    global_random.give(state)
    assert next(numbers()) == expected[3]


def test_data_that_draws_nothing_is_not_in_the_way() -> None:
    drawn = Drawn()
    batches = drawn.each(iter(range(3)))
    next(batches)
    random.random()  # a callback
    assert list(batches) == [1, 2]
    assert drawn.before(0) is None and not Drawn.any


def test_no_batch_is_made_while_the_state_is_an_earlier_one() -> None:
    drawn, made = Drawn(), list[int]()

    def read() -> None:
        for batch in drawn.each(iter(range(4))):
            made.append(batch)

    with drawn.stops_at(2):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join(0.2)
        assert made == [0, 1]
    thread.join(10)
    assert made == [0, 1, 2, 3]


@pytest.mark.parametrize("other", [random.random, np.random.rand])
def test_states_differ_when_either_generator_has_drawn(other) -> None:
    before = global_random.take()
    assert global_random.are_equal(before, global_random.take())
    other()
    assert not global_random.are_equal(before, global_random.take())


def test_the_seeds_of_tensorflow_go_on() -> None:
    tf.random.set_seed(3)
    tf.random.uniform([])
    state = global_random.take()
    expected = float(tf.random.uniform([]))
    assert not global_random.are_equal(state, global_random.take())
    global_random.give(state)
    assert float(tf.random.uniform([])) == expected
    global_random.give(state[:2])  # of an earlier version


def within() -> Iterator[float]:
    """A step's Python begins and returns while a batch is made."""
    while True:
        with Drawn.not_by_data():
            yield random.random()


@pytest.mark.parametrize("when", ["never", "all the time", "within"])
def test_what_is_drawn_while_a_steps_python_runs_may_be_the_steps(when):
    drawn = Drawn()
    drawn.begins()
    batches = drawn.each(within() if when == "within" else iter(random.random, 2.0))
    with Drawn.not_by_data() if when == "all the time" else contextlib.nullcontext():
        list(itertools.islice(batches, 2))
    assert Drawn.any and Drawn.surely is (when == "never")
    assert Drawn.calls[1] == (when == "within")


@pytest.mark.parametrize("draws", ["at first", "in the end"])
def test_who_asks_while_a_batch_is_being_made_is_told_what_was_before_it(draws):
    """It has drawn already, or has not yet: nobody can tell, and both are given the same."""
    may_go_on, is_in_it = threading.Event(), threading.Event()

    def batches() -> Iterator[float]:
        yield random.random()
        drawn = [random.random()] if draws == "at first" else []
        is_in_it.set()
        may_go_on.wait(20)
        yield from drawn or [random.random()]

    drawn, made = Drawn(), list[float]()
    drawn.begins()
    thread = threading.Thread(target=lambda: made.extend(drawn.each(batches())))
    thread.start()
    assert is_in_it.wait(20)
    drawn.takes(1)
    now = global_random.take()
    state = drawn.before(1) or now
    may_go_on.set()
    thread.join(20)
    global_random.give(state)
    assert [random.random()] == made[1:]
