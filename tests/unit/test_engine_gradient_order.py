"""Gradients are computed in the order in which they are sent, where that changes nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfrun.engine import gradient_order
from tfrun.engine.gradient_order import Stages

LAYERS = 6


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_order, "_has_one_thread", lambda: True)


def made(extra=lambda gradients: None, layer=lambda x: x):
    """A step's graph, what stands for its packs, and its gradients as they would be without."""
    weights = [tf.Variable(tf.random.stateless_normal((8, 8), (1, i))) for i in range(LAYERS)]
    told: list[int] = []

    def tells(number, gradient):
        told.append(int(number))
        return number

    @tf.function(autograph=False)
    def step(x, chained):
        with tf.GradientTape() as tape:
            for weight in weights:
                x = layer(tf.nn.relu(x @ weight))
            loss = tf.reduce_sum(x)
        gradients = tape.gradient(loss, weights)
        extra(gradients)
        packs = [[gradients[i]] for i in reversed(range(LAYERS))]
        stages = Stages(packs)
        begun = [
            tf.numpy_function(tells, [tf.constant(k), *pack], tf.int32)
            for k, pack in enumerate(packs)
        ]
        if chained:
            stages.follow(begun)
        return gradients, begun

    return step, told


def before_packs(step) -> list[int]:
    """How many products of matrices have to be done before each pack is handed in."""
    graph = step.get_concrete_function(tf.TensorSpec((4, 8)), True).graph
    packs = [op for op in graph.get_operations() if op.type == "PyFunc"]
    return [sum(one.type == "MatMul" for one in _behind(op)) for op in packs]


def held_back(step) -> int:
    """How many products of matrices wait for a pack."""
    graph = step.get_concrete_function(tf.TensorSpec((4, 8)), True).graph
    packs = {op for op in graph.get_operations() if op.type == "PyFunc"}
    products = [op for op in graph.get_operations() if op.type == "MatMul"]
    return sum(bool(packs & _behind(op)) for op in products)


def _behind(op) -> set:
    seen, left = set(), [op]
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += [*(tensor.op for tensor in one.inputs), *one.control_inputs]
    return seen


def test_what_a_later_pack_needs_waits_for_the_one_before() -> None:
    step, told = made()
    # All but the forward pass and the first weight's gradient: two products for each other layer.
    assert held_back(step) == 2 * (LAYERS - 1)
    assert before_packs(step) == [LAYERS + 1 + 2 * k for k in range(LAYERS)]
    x = tf.random.stateless_normal((4, 8), (1, 2))
    found, plain = step(x, True), step(x, False)
    assert told == [*range(LAYERS)] * 2
    for mine, its in zip(found[0], plain[0], strict=True):
        np.testing.assert_array_equal(mine, its)


def prints_first(gradients) -> None:
    tf.print("first:", tf.norm(gradients[0]), output_stream="file:///dev/null")


def counts_first(gradients) -> None:
    COUNT.assign_add(gradients[0][0, 0])


COUNT = tf.Variable(0.0)


@tf.custom_gradient
def through_python(x):
    def gradient(dy):
        return tf.numpy_function(lambda value: value, [dy], tf.float32)

    return tf.identity(x), gradient


@pytest.mark.parametrize(
    "given", [{"extra": prints_first}, {"extra": counts_first}, {"layer": through_python}]
)
def test_what_has_an_order_of_its_own_keeps_it(given) -> None:
    """Else the graph would wait for itself."""
    step, _ = made(**given)
    gradients, _ = step(tf.ones((4, 8)), True)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_several_threads_compute_what_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_order, "_has_one_thread", lambda: False)
    assert held_back(made()[0]) == 0
