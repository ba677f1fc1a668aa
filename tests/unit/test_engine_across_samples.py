"""Whether samples meet others of their batch, in a step's graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

from tfrun.engine import across_samples
from tfrun.engine.loss_reader import LossReader
from tfrun.engine.loss_terms import Walk

Step = Callable[[Any], Any]
ops: Any = keras.ops


def meets(step: Step, *, rows: int | None = None, for_losses: bool = False) -> bool:
    """Whether samples meet in a step whose batches have 6 numbers for each of them."""

    def traced(x: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        result = step(x)
        walk = Walk(LossReader(), [x], x.shape[0], {})
        first = across_samples.first_across(
            walk, graph, across_samples.counting(graph), for_losses=for_losses
        )
        found.append(first is not None)
        return result

    found: list[bool] = []
    tf.function(traced, autograph=False).get_concrete_function(tf.TensorSpec((rows, 6)))
    return found[0]


@pytest.fixture(scope="module")
def variable() -> Any:
    return tf.Variable(tf.zeros(6))


ACROSS: dict[str, Step] = {
    "a mean": lambda x: x - ops.mean(x, axis=0),
    "a variance": lambda x: x / ops.sqrt(ops.var(x, axis=0) + 1.0),
    "one mean": lambda x: x * ops.mean(x),
    "a share": lambda x: x / ops.sum(x),
    "the largest": lambda x: x / ops.max(x),
    "the smallest, scaled": lambda x: x - 2.0 * ops.min(x, axis=0) ** 2,
    "a softmax": lambda x: tf.nn.softmax(tf.transpose(x)),
    "a running sum": lambda x: ops.cumsum(x, axis=0),
    "the batch before": lambda x: ops.roll(x, 1, axis=0),
    "distances": lambda x: ops.matmul(x, ops.transpose(x)),
    "one product": lambda x: x + ops.tensordot(x, x, 2),
    "a function": lambda x: tf.function(lambda y: y - tf.reduce_mean(y, 0))(x),
    "a branch": lambda x: tf.cond(x[0, 0] > 0, lambda: x - tf.reduce_mean(x, 0), lambda: x),
    "a loop": lambda x: tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y - tf.reduce_max(y, 0)), (0, x)
    )[1],
    "batch normalization": lambda x: tf.compat.v1.nn.fused_batch_norm(
        tf.reshape(x, (-1, 1, 1, 6)), tf.ones(6), tf.zeros(6), is_training=True
    )[0],
}
APART: dict[str, Step] = {
    "a layer": lambda x: tf.nn.relu(ops.matmul(x, tf.ones((6, 3)))),
    "of a sample": lambda x: (x - ops.mean(x, -1, keepdims=True)) / ops.max(x, 1, keepdims=True),
    "a softmax": lambda x: tf.nn.softmax(x),
    "pieces": lambda x: ops.reshape(ops.reshape(x, (ops.shape(x)[0], 2, 3)) * 2.0, (-1, 6)),
    "a product in each": lambda x: tf.matmul(x[:, :, None], x[:, None, :]),
    "of weights": lambda x: x - tf.reduce_mean(tf.ones((4, 6)) * 2.0, 0),
    "a function": lambda x: tf.function(lambda y: tf.nn.softmax(y))(x),
    "a loop": lambda x: tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y - tf.reduce_max(y, 1, keepdims=True)), (0, x)
    )[1],
    "each by itself": lambda x: tf.map_fn(lambda row: row - tf.reduce_mean(row), x),
    "batch normalization": lambda x: tf.compat.v1.nn.fused_batch_norm(
        *(tf.reshape(x, (-1, 1, 1, 6)), tf.ones(6), tf.zeros(6), tf.zeros(6), tf.ones(6)),
        is_training=False,
    )[0],
    "a loss beside": lambda x: (x, tf.reduce_mean(x) * 2.0)[0],
}


@pytest.mark.parametrize("name", ACROSS)
def test_samples_meet(name: str) -> None:
    assert meets(ACROSS[name]) and meets(ACROSS[name], rows=4)


@pytest.mark.parametrize("name", APART)
def test_each_is_by_itself(name: str) -> None:
    assert not meets(APART[name]) and not meets(APART[name], rows=4)


def test_a_share_may_be_a_part_of_a_loss() -> None:
    def loss(x: Any) -> Any:
        return tf.reduce_sum(x / tf.reduce_sum(x)) + tf.reduce_sum(
            x / tf.cast(tf.shape(x)[0], tf.float32)
        )

    assert meets(loss) and not meets(loss, for_losses=True)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda v, x: v.assign(0.9 * v + 0.1 * tf.reduce_mean(x, 0)), True),
        (lambda v, x: v.assign_add(tf.fill([6], tf.cast(tf.shape(x)[0], tf.float32))), True),
        (lambda v, x: v.assign_add(tf.ones(6)), False),
        (lambda v, x: v.assign(v * 0.5), False),
    ],
)
def test_a_variable_is_moved(variable: Any, change: Any, wanted: bool) -> None:
    def step(x: Any) -> Any:
        change(variable, x)
        return x + variable

    assert meets(step) is wanted


def test_pythons_own_number_of_samples_is_seen() -> None:
    count = tf.Variable(tf.zeros(()))
    assert meets(lambda x: (count.assign_add(float(x.shape[0])), x * count)[1], rows=4)
    assert not meets(lambda x: (count.assign_add(1.0), x * count)[1], rows=4)


def test_what_metrics_count_is_none_of_the_samples() -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        metric = keras.metrics.MeanSquaredError()
    assert not meets(lambda x: (metric.update_state(x, x * 2.0), x)[1])


def test_functions_in_a_row_are_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads what the one before it has made past its arguments, as its captures."""
    asked, op = [], LossReader.op
    monkeypatch.setattr(LossReader, "op", lambda self, here: (asked.append(1), op(self, here))[1])

    def step(x: Any) -> Any:
        for _ in range(24):
            x = tf.function(lambda y=x: tf.nn.relu(y) * 2.0, autograph=False)()
        return x

    def captures(x: Any) -> Any:
        for _ in range(24):
            before = x
            x = tf.function(lambda: tf.nn.relu(before) * 2.0, autograph=False)()  # noqa: B023
        return x

    assert not meets(step) and not meets(captures)
    assert len(asked) < 20_000
