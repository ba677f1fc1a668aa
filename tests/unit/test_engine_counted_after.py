"""What a step hands in is what its metrics hold at its end, where that does not need the update."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tfrun.engine import counted_after


def summed(tensor: tf.Tensor) -> tf.Tensor:
    """As workers sum: by Python, which TensorFlow takes for something that acts."""
    found = tf.numpy_function(lambda value: np.array(10 * value), [tensor], tf.float32)
    return tf.ensure_shape(found, [])


def step_of(count: Callable[[tf.Variable, tf.Variable], object]) -> tuple[float, bool]:
    """What a step has summed that counts after its update, and whether it was exchanged."""
    weight, metric, known = tf.Variable(1.0), tf.Variable(2.0), tf.Variable(0.0)
    exchanged = []

    @tf.function(autograph=False)
    def step() -> None:
        totals, travels = counted_after.travelling(metric.read_value())
        total = summed(totals)
        with tf.control_dependencies([total]):
            weight.assign_add(1.0)
        known.assign(total)
        count(weight, metric)
        exchanged.append(counted_after.exchange(travels, metric.read_value()))

    step()
    return float(known), exchanged[0]


def adds(weight: tf.Variable, metric: tf.Variable) -> None:
    metric.assign_add(1.0)


def adds_in_a_function(weight: tf.Variable, metric: tf.Variable) -> None:
    tf.function(lambda: metric.assign_add(tf.square(2.0)))()


def adds_weight(weight: tf.Variable, metric: tf.Variable) -> None:
    metric.assign_add(weight)


def adds_weight_in_a_branch(weight: tf.Variable, metric: tf.Variable) -> None:
    metric.assign_add(tf.cond(metric > 0.0, lambda: weight.read_value(), lambda: tf.zeros([])))


def adds_what_a_function_reads(weight: tf.Variable, metric: tf.Variable) -> None:
    metric.assign_add(tf.function(lambda: weight + 1.0)())


def prints(weight: tf.Variable, metric: tf.Variable) -> None:
    """TensorFlow has what acts happen in its order: the sum first."""
    with tf.control_dependencies([tf.print("adds", output_stream="file:///dev/null")]):
        metric.assign_add(1.0)


@pytest.mark.parametrize(("count", "total"), [(adds, 30.0), (adds_in_a_function, 60.0)])
def test_what_does_not_need_the_update_is_handed_in(count: Callable, total: float) -> None:
    assert step_of(count) == (total, True)


@pytest.mark.parametrize(
    "count", [adds_weight, adds_weight_in_a_branch, adds_what_a_function_reads, prints]
)
def test_what_needs_the_update_is_left(count: Callable) -> None:
    assert step_of(count) == (20.0, False)


def test_what_counts_before_it_is_as_it_was() -> None:
    assert step_of(lambda weight, metric: None) == (20.0, True)


def test_in_another_function_it_is_left() -> None:
    metric = tf.Variable(2.0)
    found = []

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        def of_last() -> tf.Tensor:
            totals, travels = counted_after.travelling(metric.read_value())
            found.append(travels)
            return summed(totals)

        total = tf.cond(metric > 0.0, of_last, lambda: tf.zeros([]))
        found.append(counted_after.exchange(found[0], metric.read_value()))
        return total

    assert float(step()) == 20.0 and found[1] is False
    assert counted_after.exchange(None, metric.read_value()) is False


def test_where_nothing_is_traced_nothing_travels() -> None:
    totals, travels = counted_after.travelling(tf.constant(1.0))
    assert float(totals) == 1.0 and travels is None
