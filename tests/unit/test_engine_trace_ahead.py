"""What others have traced is found by what they tell of it, and traced; no run leaves anything."""

from __future__ import annotations

import gc
import types
from typing import Any

import pytest
import tensorflow as tf

from tfrun.engine import loop_calls, loop_traces, trace_ahead
from tfrun.engine.loop_traces import Traces, structure_of
from tfrun.engine.synchronous import run_by
from tfrun.engine.turns import Turns


class HostCalls:
    turns: Any = None

    def tracing(self, places: Any) -> Any:
        return tf.init_scope()


STRATEGY: Any = types.SimpleNamespace(
    extended=types.SimpleNamespace(_host_calls=HostCalls()),
    run=lambda function, args, kwargs: function(*args, **kwargs),
)
made: list[str] = []
count = tf.Variable(0)


@pytest.fixture(scope="module")
def script() -> Any:
    """The functions of a script; made here, as the tests' modules are kept from the collector."""

    @tf.function
    def adds(batch: dict[str, tf.Tensor], *, scale: float = 1.0, label: Any = "") -> tf.Tensor:
        made.append(f"adds {batch['x'].shape[0]}")
        count.assign_add(1)
        return scale * tf.reduce_sum(batch["x"])

    @tf.function
    def needs(x: tf.Tensor) -> tf.Tensor:
        made.append("needs")
        return x + globals()["comes_later"]

    def twin() -> Any:
        @tf.function
        def one(x: tf.Tensor) -> tf.Tensor:
            return x + 1

        return one

    return types.SimpleNamespace(adds=adds, needs=needs, twins=(twin(), twin()))


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_calls, "_ahead", {})
    monkeypatch.setattr(HostCalls, "turns", Turns([0], 1, 1))
    gc.collect()  # what an earlier test has traced is another function of the same place
    made.clear()


def told(function: Any, *args: Any, is_run: bool = False, **kwargs: Any) -> str | None:
    """What a worker tells that has traced a function for these arguments."""
    leaves = tf.nest.flatten((args, kwargs))
    fixed = {i: leaf for i, leaf in enumerate(leaves) if not tf.is_tensor(leaf)}
    specs = [tf.TensorSpec.from_tensor(leaf) for leaf in leaves if tf.is_tensor(leaf)]
    called = run_by(STRATEGY, function) if is_run else function
    call = Traces(called, function, structure_of((args, kwargs)), fixed, HostCalls())
    return trace_ahead.told(call, specs, call.traced_for(tuple(specs)))


def traces(texts: list[str], variables: Any = tuple) -> bool:
    return trace_ahead.trace(STRATEGY, texts, variables)


def known() -> list[Traces]:
    return list(loop_calls._ahead.values())


@pytest.mark.parametrize("is_run", [False, True], ids=["called", "run by the strategy"])
def test_it_is_found_and_traced_and_leaves_nothing(script: Any, is_run: bool) -> None:
    count.assign(0)
    sizes = (5, 4) if is_run else (3, 2)  # a function is traced once for each
    rest = {name: tf.zeros(()) for name in "gbdfc"}  # dictionaries keep their order
    given = [{"x": tf.zeros(n), **rest} for n in sizes]
    texts = [told(script.adds, one, scale=0.5, is_run=is_run) for one in given]
    made.clear()
    assert traces([text for text in texts if text])
    assert int(count) == 0 and made == [f"adds {size}" for size in sizes]
    # The loop's own call is that one, and it is not traced anew.
    calls = loop_calls.Calls(types.SimpleNamespace(turns=None), {})
    (call,) = known()
    structure = structure_of(((given[0],), {"scale": 0.5}))
    assert calls.of(call.function, script.adds, structure, {6: 0.5}) is call
    tensors = [*rest.values(), tf.ones(sizes[0])]
    assert float(call.get_concrete_function(tensors)(tensors)) == sizes[0] / 2
    assert int(count) == 1 and len(made) == 2


def test_another_number_is_another_call(script: Any) -> None:
    text = told(script.adds, {"x": tf.zeros(3)}, scale=0.5)
    assert text and traces([text])
    calls = loop_calls.Calls(types.SimpleNamespace(turns=None), {})
    (call,) = known()
    assert calls.of(script.adds, None, call.structure, {1: 0.25}) is not call


def test_what_cannot_be_traced_yet_is_left_to_the_loop(script: Any) -> None:
    globals()["comes_later"] = 2.0
    text = told(script.needs, tf.zeros(3))
    del globals()["comes_later"]
    made.clear()
    assert text and traces([text])
    assert made == ["needs"] and not known() and not loop_traces.has_failed
    gc.collect()
    numbers = iter(range(2))  # variables have been made before it failed
    assert not traces([text], lambda: next(numbers))


def test_what_would_be_another_function_is_left_to_the_loop(script: Any) -> None:
    globals()["comes_later"] = 2.0
    text = told(script.needs, tf.zeros(4))
    globals()["comes_later"] = 3.0  # the script has not set it yet to what the others had
    made.clear()
    assert text and traces([text])
    assert made == ["needs"] and not known()
    globals()["comes_later"] = 2.0
    gc.collect()  # what has just been tried is there no more
    assert traces([text]) and len(known()) == 1
    del globals()["comes_later"]


def test_what_is_there_twice_is_left_to_the_loop(script: Any) -> None:
    text = told(script.twins[0], tf.zeros(3))
    assert text and traces([text]) and not known()


def test_what_another_script_has_traced_is_passed_over(script: Any) -> None:
    text = told(script.adds, {"x": tf.zeros(3)}, scale=0.5)
    assert text and traces([text.replace('"adds"', '"gone"')])
    assert not known()


@pytest.mark.parametrize("given", [object(), "a" * trace_ahead.LONGEST])
def test_what_does_not_travel_is_not_told(script: Any, given: Any) -> None:
    assert told(script.adds, {"x": tf.zeros(3)}, label=given) is None
