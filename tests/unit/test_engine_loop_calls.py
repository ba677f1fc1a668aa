"""A loop's calls are made for each replica, and again for those that come to be here."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tfrun.engine import loop_calls
from tfrun.engine.assigned_in_step import noted
from tfrun.engine.hand_in_places import Places


def test_traces_of_one_function_hand_in_at_the_same_places() -> None:
    places = Places()
    places.begin()
    first = [places.next("sum a"), places.next("sum b"), places.next("sum a")]
    places.begin()
    second = [places.next("sum b"), places.next("sum a")]  # the first one had been traced
    assert second[0] is first[1] and second[1] is first[0]
    assert len({place.name for place in first}) == 3
    assert first[0].get("adder", list) is second[1].get("adder", list)


class Turns:
    """Those that hold replicas here: each computes in this thread, one after the other."""

    seconds, one_each, balance = 0.0, False, None

    def __init__(self, held: list[int]) -> None:
        self.held = held
        self.returned: list[Any] = []
        self.fails = 0  # so many of the next calls
        self.joined: list[int] = []  # who is here once the next call has gone on in another round

    def run(self, call: Any, given: list[list[Any]], *, gives: Any) -> Any:
        for one in given:
            call.get_concrete_function(one)
        if self.joined:
            self.held, self.joined = self.joined, []
            given = gives()
            if given is None:
                raise tf.errors.UnavailableError(None, None, "a peer has left the round")
        if self.fails:
            self.fails -= 1
            raise tf.errors.UnavailableError(None, None, "a peer has left the round")
        self.returned = [call.get_concrete_function(one)(one) for one in given]
        return self.returned[0]


class HostCalls:
    def __init__(self, held: list[int]) -> None:
        self.turns = Turns(held)

    def tracing(self, places: Places) -> Any:
        places.begin()
        return tf.init_scope()


@tf.function
def double(x: tf.Tensor) -> tf.Tensor:
    return 2 * x


@tf.function
def plus(x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"sum": x + y}


def pieces(*numbers: float) -> list[tf.Tensor]:
    return [tf.constant([number]) for number in numbers]


def test_what_a_call_returns_is_known_for_each_replica() -> None:
    calls = loop_calls.Calls(HostCalls([0, 1]), {})
    x = calls.step_begins(pieces(1.0, 10.0))
    (y,) = loop_calls.made(double, (x,), {}) or ()
    (z,) = loop_calls.made(plus, (x,), {"y": y}) or ()
    assert y.numpy() == [2.0] and z["sum"].numpy() == [3.0]
    step = loop_calls.open_steps[calls]
    assert [part.numpy().tolist() for part in (step.parts(z["sum"]) or list)()] == [[3.0], [30.0]]
    assert loop_calls.made(double, (tf.constant(1.0),), {}) is None  # no part of the batch
    calls.step_ended()
    assert loop_calls.made(double, (x,), {}) is None


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_call_that_is_cut_off_is_made_again_with_those_before_it(fails: int) -> None:
    """Also where another peer goes while that is done."""
    calls = loop_calls.Calls(HostCalls([1]), {})
    turns, rounds = calls.turns, []

    def again(error: Exception) -> list[tf.Tensor]:
        rounds.append(error)
        turns.held = [0, 1]
        return pieces(1.0, 10.0)

    calls.again = again
    x = calls.step_begins(pieces(10.0))
    (y,) = loop_calls.made(double, (x,), {}) or ()
    assert y.numpy() == [20.0]
    step, alike = loop_calls.open_steps[calls], tf.constant(7.0)
    step.note_alike(alike)
    turns.fails = fails
    (z,) = loop_calls.made(plus, (x, y), {}) or ()
    assert len(rounds) == fails
    assert [part.numpy() for part in (step.parts(alike) or list)()] == [7.0, 7.0]
    assert [part.numpy().tolist() for part in (step.parts(z["sum"]) or list)()] == [[3.0], [30.0]]
    # The loop holds what it was given at first, and goes on with that.
    (more,) = loop_calls.made(double, (y,), {}) or ()
    assert [part.numpy().tolist() for part in (step.parts(more) or list)()] == [[4.0], [40.0]]
    calls.step_ended()


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_what_the_loop_assigns_between_two_calls_is_assigned_again_between_them(fails: int) -> None:
    """And nothing that tfrun assigns where it takes back what the step has done."""
    calls, rate = loop_calls.Calls(HostCalls([1]), {}), tf.Variable(1.0)
    seen = []

    @tf.function
    def scaled(x: tf.Tensor) -> tf.Tensor:
        return rate * x

    def assign(value: float) -> None:
        noted(lambda: rate.assign(value))

    def again(error: Exception) -> list[tf.Tensor]:
        seen.append(float(rate))
        assign(1.0)  # taken back
        calls.turns.held = [0, 1]
        return pieces(1.0, 10.0)

    calls.again = again
    for _ in range(2):
        assign(1.0)
        x = calls.step_begins(pieces(10.0))
        (one,) = loop_calls.made(scaled, (x,), {}) or ()
        assign(2.0)
        assign(3.0)
        (two,) = loop_calls.made(scaled, (one,), {}) or ()
        assign(4.0)
        calls.turns.fails = fails
        (three,) = loop_calls.made(scaled, (two,), {}) or ()
        step = loop_calls.open_steps[calls]
        found = [part.numpy().tolist() for part in (step.parts(three) or list)()]
        assert found == [[12.0], [120.0]] and float(rate) == 4.0
        assert seen[0] == 4.0
        calls.step_ended()
        calls.turns.held = [1]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("number", [0, 1])
def test_the_first_call_of_a_step_can_go_on_with_others(number: int, size: int) -> None:
    """If it was traced for pieces like theirs; what comes later is made again with it."""
    calls = loop_calls.Calls(HostCalls([1]), {})
    theirs = [tf.fill([size], 1.0), tf.constant([10.0])]
    asked, again = [], []

    def goes_on(given: Any) -> Any:
        asked.append(given(theirs))
        return asked[-1]

    calls.goes_on, calls.again = goes_on, lambda error: again.append(error) or theirs
    x = calls.step_begins(pieces(10.0))
    step, alike = loop_calls.open_steps[calls], tf.constant(7.0)
    step.note_alike(alike)
    for _ in range(number):
        loop_calls.made(double, (x,), {})
    calls.turns.joined = [0, 1]
    (y,) = loop_calls.made(plus, (x, x), {}) or ()
    assert [part.numpy()[0] for part in (step.parts(y["sum"]) or list)()] == [2.0, 20.0]
    assert [part.numpy() for part in (step.parts(alike) or list)()] == [7.0, 7.0]
    goes = not number and size == 1
    assert (len(asked), len(again)) == (0 if number else 1, 0 if goes else 1)
    # The loop holds what it was given at first, and goes on with that.
    (z,) = loop_calls.made(double, (x,), {}) or ()
    assert [part.numpy()[0] for part in (step.parts(z) or list)()] == [2.0, 20.0]
    calls.step_ended()


def test_an_error_of_the_scripts_own_passes() -> None:
    calls = loop_calls.Calls(HostCalls([0, 1]), {})
    x = calls.step_begins(pieces(1.0, 10.0))

    @tf.function
    def wrong(x: tf.Tensor) -> tf.Tensor:
        raise ValueError("of the script's own")

    with pytest.raises(ValueError, match="of the script's own"):
        loop_calls.made(wrong, (x,), {})
    calls.step_ended()
