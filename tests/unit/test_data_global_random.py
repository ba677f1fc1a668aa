"""What data that is made ahead has drawn from Python's and numpy's global generators."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf

from tfrun.data import global_random
from tfrun.data.global_random import Drawn
from tfrun.state import random_state


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in (("any", False), ("by_steps", False), ("now", Drawn())):
        monkeypatch.setattr(Drawn, name, value)
    before = global_random.take()
    random.seed(1)
    np.random.seed(1)
    yield
    global_random.give(before)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No generators of the script's are known yet."""
    for name in ("_own", "_first", "_later"):
        monkeypatch.setattr(global_random, name, {})


MADE = {
    "numpy's": lambda: np.random.default_rng(4),
    "numpy's older": lambda: np.random.RandomState(4),
    "Philox": lambda: np.random.Generator(np.random.Philox(4)),
    "python's": lambda: random.Random(4),
}


@pytest.mark.parametrize("kind", MADE)
def test_generators_of_the_script_go_on_as_the_global_ones(own, kind):
    generator, without = MADE[kind](), global_random.take()
    global_random.know("mine", generator)
    global_random.know("mine again", generator)
    before = global_random.take()
    assert global_random.are_equal(before, global_random.take())
    assert global_random.are_equal(before, without) and len(before) == len(without) + 1
    expected = float(generator.normal() if hasattr(generator, "normal") else generator.random())
    after = global_random.take()
    assert not global_random.are_equal(before, after)
    # Also by a state of when it was not known yet: it held what it held first.
    for state in (before, without):
        global_random.give(state)
        drawn = generator.normal() if hasattr(generator, "normal") else generator.random()
        assert float(drawn) == expected and global_random.are_equal(after, global_random.take())


@pytest.mark.parametrize("kind", MADE)
def test_one_that_comes_to_be_known_later_goes_on_from_what_was_kept(own, kind, monkeypatch):
    first, arrays = MADE[kind](), dict[str, np.ndarray]()
    global_random.know("mine", first)
    first.random() if hasattr(first, "random") else first.rand()
    kept = random_state.encode(global_random.take(), arrays)
    monkeypatch.setattr(global_random, "_own", {})  # a worker that starts again
    monkeypatch.setattr(global_random, "_first", {})
    random_state.put_back(kept, arrays)
    now = global_random.take()
    global_random.give(now[:3])
    global_random.give(now)
    again = MADE[kind]()
    global_random.know("mine", again)
    assert global_random.take()[3].keys() == {"mine"}
    draws = [one.random() if hasattr(one, "random") else one.rand() for one in (first, again)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize("besides", [{0}, {1}, {3}, {0, 3}, set()])
def test_some_stay_where_they_are(own, besides):
    generator = random.Random(4)
    global_random.know("mine", generator)
    state = global_random.take()
    random.random(), np.random.rand(), generator.random()
    after = global_random.take()
    global_random.give_but(state, besides)
    now = global_random.take()
    for which in (0, 1, 3):
        is_as = after if which in besides else state
        assert global_random.hold_equal(now[which], is_as[which])


def test_two_of_one_name_are_kept_apart(own):
    one, other = random.Random(1), random.Random(2)
    global_random.know("mine", one)
    global_random.know("mine", other)
    state = global_random.take()
    drawn = one.random(), other.random()
    global_random.give(state)
    assert (one.random(), other.random()) == drawn


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


@pytest.mark.parametrize("before", ["draws", "draws nothing", "has not run"])
@pytest.mark.parametrize("where", ["before it", "within it", "behind it"])
@pytest.mark.parametrize("other", ["callbacks", "an eager step", "a step"])
def test_what_is_drawn_while_other_python_runs_is_of_who_draws_elsewhere(where, other, before):
    """A batch in which some runs; it has run before, while none was made, and drawn or not."""
    drawn = Drawn()

    @contextlib.contextmanager
    def runs() -> Iterator[None]:
        if other == "a step":
            with Drawn.not_by_data(1):
                yield
            return
        drawn.runs(other.removeprefix("an eager "))
        yield
        drawn.runs("")

    def batches() -> Iterator[float]:
        yield 0.0
        if where == "before it":
            random.random()
        with runs():
            if where == "within it":
                random.random()
        if where == "behind it":
            random.random()
        yield 1.0

    drawn.begins()
    each = drawn.each(batches())
    next(each)
    if before != "has not run":
        with runs():
            if before == "draws":
                random.random()
    state = global_random.take()
    next(each)
    is_datas = where != "within it" or (before == "draws nothing" and other != "callbacks")
    assert drawn.draws is is_datas and Drawn.any is is_datas
    told = drawn.before(1)
    assert global_random.are_equal(told, state) if told is not None else not is_datas
    by_steps = before == "draws" or (where == "within it" and not is_datas)
    assert Drawn.by_steps is (other != "callbacks" and by_steps) or is_datas


@pytest.mark.parametrize("is_idle", [False, True], ids=["a draws, b not", "both draw nothing"])
def test_each_function_of_a_step_is_known_for_itself(is_idle):
    drawn = Drawn()

    drawn.begins()
    each = drawn.each(_in("a"))
    next(each)
    for function in "ab":
        with Drawn.not_by_data(function):
            if function == "a" and not is_idle:
                random.random()
    next(each)
    assert drawn.draws is is_idle and Drawn.by_steps is not is_idle


@pytest.mark.parametrize("other", ["", "callbacks", "a"])
@pytest.mark.parametrize("drawn_at", [0, 150, 250])
def test_what_a_pipeline_draws_from_is_known_once_it_has_run_alone(other, drawn_at, monkeypatch):
    """Or beside what draws nothing; and the first calls are enough."""
    monkeypatch.setattr(Drawn, "by_pipelines", set())
    drawn = Drawn()
    drawn.is_of_pipeline()
    drawn.begins()
    if other == "a":
        with Drawn.not_by_data("a"):
            pass
    for number in range(300):
        if other == "callbacks":
            drawn.runs("callbacks")
        with Drawn.not_by_data("a") if other == "a" else nullcontext(), Drawn.by_pipeline():
            if number >= drawn_at:
                np.random.rand()
        if other == "callbacks":
            drawn.runs("")
    is_known = drawn_at < 200 and other != "callbacks"
    assert Drawn.by_pipelines == ({1} if is_known else set())
    assert drawn.draws is Drawn.any is is_known


def test_a_second_function_of_a_pipeline_is_watched_as_well(monkeypatch):
    """And what callbacks draw meanwhile stays theirs."""
    monkeypatch.setattr(Drawn, "by_pipelines", set())
    drawn = Drawn()
    drawn.is_of_pipeline()
    drawn.begins()
    with Drawn.by_pipeline():
        np.random.rand()
    assert drawn.draws and Drawn.by_pipelines == {1}
    drawn.runs("callbacks")
    with Drawn.by_pipeline():
        random.random()
    drawn.runs("")
    assert Drawn.by_pipelines == {1}
    with Drawn.by_pipeline():
        random.random()
    assert Drawn.by_pipelines == {0, 1}
    for _ in range(300):
        with Drawn.by_pipeline():
            pass
    drawn.runs("callbacks")  # nobody has to know any more
    assert not drawn._main


def test_what_a_function_draws_beside_a_pipeline_may_be_its_own(monkeypatch):
    monkeypatch.setattr(Drawn, "by_pipelines", set())
    drawn = Drawn()
    drawn.is_of_pipeline()
    drawn.begins()
    with Drawn.by_pipeline(), Drawn.not_by_data("a"):
        np.random.rand()
    assert Drawn.by_steps and not Drawn.by_pipelines and not drawn.draws


@pytest.mark.parametrize("draws", [False, True])
def test_of_functions_that_run_at_once_nobody_knows_which_has_drawn(draws):
    drawn = Drawn()
    drawn.begins()
    each = drawn.each(_in("b"))
    next(each)
    with Drawn.not_by_data("a"), Drawn.not_by_data("b"):
        if draws:
            random.random()
    with Drawn.not_by_data("a"):
        pass
    next(each)
    assert drawn.draws is not draws


def test_what_a_callback_draws_while_data_is_made_that_draws_nothing_is_kept():
    drawn = Drawn()
    drawn.begins()
    made = drawn.each(iter(range(9)))
    for _ in range(3):
        next(made)
        drawn.runs("callbacks")
        random.random()
        drawn.runs("")
    assert drawn.before(1) is None and not Drawn.any


@pytest.mark.parametrize("draws", [False, True])
def test_what_the_generators_are_given_while_data_is_made_is_no_draw_of_it(draws):
    """A step's Python has drawn for a replica, and they are put back for the next one."""
    first = global_random.take()

    def batches() -> Iterator[float]:
        yield 0.0
        if draws:
            random.random()
        global_random.give(first)
        yield 1.0

    drawn = Drawn()
    drawn.begins()
    made = drawn.each(batches())
    next(made)
    with Drawn.not_by_data(1):
        random.random()
    next(made)
    assert drawn.draws is Drawn.any is draws and Drawn.by_steps


def _in(function: str) -> Iterator[int]:
    """Batches; while the second one is made this runs, and something is drawn."""
    yield 0
    with Drawn.not_by_data(function):
        random.random()
    yield 1


def test_data_is_looked_at_first_and_what_has_drawn_then_draws():
    def made() -> Iterator[float]:
        while True:
            yield random.random()

    generator = made()
    drawn = Drawn(generator)
    with drawn.looks():
        pass
    assert not drawn.draws
    with drawn.looks():
        next(generator)
    # Another call reads on what this one has left, which draws nothing.
    assert drawn.draws and Drawn.any and Drawn(generator).draws and not Drawn(made()).draws


def test_the_data_that_is_read_is_that_of_the_call_within():
    outer, inner, around = Drawn(), Drawn(), Drawn.now
    outer.begins()
    inner.begins()
    assert Drawn.now is inner
    inner.ends(1)
    assert Drawn.now is outer
    outer.ends(1)
    assert Drawn.now is around


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("draws", ["at first", "in the end"])
def test_who_asks_while_a_batch_is_being_made_is_told_what_was_before_it(draws, first):
    """It has drawn already, or has not yet: nobody can tell, and both are given the same."""
    may_go_on, is_in_it = threading.Event(), threading.Event()

    def batches() -> Iterator[float]:
        yield 0.0 if first else random.random()  # it is the first one that draws
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
