"""What a step reduces after its update is summed with the gradients, unless it needs the update."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tfrun.engine import travelling_results as results
from tfrun.engine.commit import AFTER_UPDATE
from tfrun.engine.travelling_results import MOST_NUMBERS

REPLICAS = 10
Values = Callable[[tf.Tensor, tf.Tensor, tf.Variable], list[tf.Tensor]]


def step_of(values: Values) -> tuple[list | None, list[np.ndarray]]:
    """What a step reduces that has a loss of 3 and a table of 2, and all that it has handed in.

    As workers sum: by Python, which TensorFlow takes for something that acts; ten replicas alike.
    """
    weight, handed = tf.Variable(1.0), []
    found = None

    def together(*arrays: np.ndarray) -> list[np.ndarray]:
        handed[:] = [array.copy() for array in arrays]
        return [REPLICAS * array for array in arrays]

    @tf.function(autograph=False)
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        nonlocal found
        loss, table = x + 1.0, tf.fill([1, 2], x)
        kept = results.place()
        gradient, *sums = tf.numpy_function(together, [x, *kept], [tf.float32] * 2)
        for total, tensor in zip(sums, kept, strict=True):
            total.set_shape(tensor.shape)
        results.summed(sums)
        with tf.control_dependencies([gradient]):
            update = weight.assign_add(1.0, read_value=False)
        with tf.control_dependencies([update]):
            loss, table = [tf.identity(value, AFTER_UPDATE) for value in (loss, table)]
        found = results.sums_of(values(loss, table, weight), REPLICAS)
        assert found or loss.op.control_inputs == [update]
        return found or []

    reduced = [total.numpy().tolist() for total in step(tf.constant(2.0))]
    return (None if found is None else reduced), handed


def test_losses_travel_with_the_gradients() -> None:
    reduced, (_, kept) = step_of(lambda loss, table, _: [2.0 * loss, table])
    assert reduced == [60.0, [[20.0, 20.0]]]
    assert kept.tolist() == [6.0, 2.0, 2.0] + [0.0] * (MOST_NUMBERS - 3)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_whole_numbers_are_summed_as_such(dtype: tf.DType) -> None:
    """To the last bit, and beyond the largest one as TensorFlow adds them up."""
    numbers = [0, 5, -5, dtype.max, dtype.min]
    reduced, _ = step_of(lambda *_: [tf.constant(numbers, dtype)])
    wanted = np.array(numbers, dtype.as_numpy_dtype) * dtype.as_numpy_dtype(REPLICAS)
    assert reduced == [wanted.tolist()]


def more_than_there_is_room_for(*_: object) -> list[tf.Tensor]:
    return [tf.fill([MOST_NUMBERS + 1], 1.0)]


@pytest.mark.parametrize(
    "values",
    [
        lambda loss, table, weight: [weight.read_value()],
        lambda loss, table, weight: [loss * weight.read_value()],
        lambda *_: [tf.constant(1.0, tf.float64)],
        lambda *_: [tf.constant(True)],
        lambda *_: [tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]))],
        more_than_there_is_room_for,
    ],
)
def test_what_cannot_travel_is_summed_by_itself(values: Values) -> None:
    reduced, (_, kept) = step_of(values)
    assert reduced is None
    assert not kept.any()


def test_each_reduction_of_a_step_has_its_own_place() -> None:
    @tf.function(autograph=False)
    def step(x: tf.Tensor) -> list:
        (kept,) = results.place()
        total = tf.numpy_function(lambda values: values * np.float32(2), [kept], tf.float32)
        total.set_shape(kept.shape)
        results.summed([total])
        first, second = results.sums_of([x], 2), results.sums_of([x + 1.0], 2)
        assert first and second
        # Of a sum of the step nobody can know beforehand what it is.
        assert results.sums_of([first[0] * 3.0], 2) is None
        inner = tf.function(lambda value: tf.constant(results.sums_of([value], 2) is None))
        return [*first, *second, inner(x)]

    assert [value.numpy() for value in step(tf.constant(5.0))] == [10.0, 12.0, True]


def test_eagerly_nothing_travels() -> None:
    assert results.place() == []
    results.summed([])
    assert results.sums_of([tf.constant(1.0)], 2) is None
