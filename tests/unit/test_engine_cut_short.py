"""A step that nobody needs any more ends before it has computed all, and has no other result."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfrun.engine import cut_short
from tfrun.engine.own_copies import UPDATE

LAYERS = 4


@pytest.fixture(autouse=True)
def opened():
    cut_short.open_again()
    yield
    cut_short.open_again()


def step(calls: list[int], *, shut_in: int, gates: bool = True, updates: int | None = None):
    """Some layers, each of which tells in Python that it has been computed."""
    weights = [tf.Variable(tf.random.stateless_normal([8, 8], [1, i])) for i in range(LAYERS)]

    def tell(number: np.ndarray, x: np.ndarray) -> np.ndarray:
        calls.append(int(number))
        if int(number) == shut_in:
            cut_short.shut()
        return x

    @tf.function(autograph=False)
    def layers(x):
        for number, weight in enumerate(weights):
            x = tf.nn.relu(x @ weight)
            x = tf.ensure_shape(tf.numpy_function(tell, [number, x], tf.float32), [8, 8])
            if number == updates:
                x = tf.cond(x[0, 0] > -1, lambda: x + 1, lambda: x, name=UPDATE)  # noqa: B023
        if gates:
            cut_short.put_gates()
        return x

    return lambda: layers(tf.ones([8, 8]))


def test_what_comes_after_a_gate_is_not_computed():
    calls: list[int] = []
    run = step(calls, shut_in=1)
    gone = pytest.raises(tf.errors.UnavailableError, match="a peer has left")
    with gone, cut_short.as_peer_error():
        run()
    assert calls == [0, 1]
    with pytest.raises(tf.errors.UnavailableError), cut_short.as_peer_error():
        run()  # at its first gate
    assert calls == [0, 1, 0]


def test_with_open_gates_it_is_the_same_step():
    calls: list[int] = []
    plain, gated = step(calls, shut_in=-1, gates=False), step(calls, shut_in=-1)
    assert np.array_equal(plain().numpy(), gated().numpy())
    assert calls == [*range(LAYERS)] * 2


def test_it_goes_on_once_they_are_open_again():
    calls: list[int] = []
    run = step(calls, shut_in=-1)
    cut_short.shut()  # before there is a gate
    with pytest.raises(tf.errors.UnavailableError), cut_short.as_peer_error():
        run()
    cut_short.open_again()
    run()
    assert calls == [0, *range(LAYERS)]


def test_what_has_updated_is_done_to_its_end():
    calls: list[int] = []
    step(calls, shut_in=1, updates=1)()
    assert calls == [*range(LAYERS)]


def test_a_large_step_has_not_more_gates_than_it_may():
    assert len(cut_short._evenly(list(range(1000)), 64)) == 64  # type: ignore[arg-type]


def test_another_error_of_a_step_is_left_as_it_is():
    with pytest.raises(tf.errors.NotFoundError), cut_short.as_peer_error():
        raise tf.errors.NotFoundError(None, None, "no such file")
