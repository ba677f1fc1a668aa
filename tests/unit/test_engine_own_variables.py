"""What a step assigns: of this worker's own part of the data, or the same on all."""

from __future__ import annotations

import tensorflow as tf

from tfrun.engine.own_variables import is_of_own_data


def test_what_comes_of_the_data_is_each_workers_own() -> None:
    variable, known = tf.Variable(2.0), tf.constant(3.0)
    found: dict[str, bool] = {}

    @tf.function
    def halved(value: tf.Tensor) -> tf.Tensor:
        return value / 2.0

    @tf.function
    def summed_by_all(value: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda x: [x], [value], [tf.float32])[0]

    @tf.custom_gradient
    def with_own_gradient(value: tf.Tensor):
        return summed_by_all(value), lambda gradient: gradient

    @tf.function
    def step(data: tf.Tensor, rate: tf.Tensor) -> None:
        found["data"] = is_of_own_data(tf.reduce_sum(data) * 0.5)
        found["condition"] = is_of_own_data(tf.cond(variable > 1.0, lambda: known, lambda: known))
        found["called"] = is_of_own_data(halved(tf.reduce_sum(data)))
        found["called number"] = is_of_own_data(halved(known))
        found["rate"] = is_of_own_data(rate * 0.5)
        found["number"] = is_of_own_data(tf.constant(1.0))
        found["variable"] = is_of_own_data(variable * 0.9 + known)
        (summed,) = tf.numpy_function(lambda x: [x], [data], [tf.float32])
        found["summed"] = is_of_own_data(summed)
        found["called sum"] = is_of_own_data(summed_by_all(data))
        found["own gradient"] = is_of_own_data(with_own_gradient(data))

        @tf.function
        def inner() -> None:
            found["captured data"] = is_of_own_data(data[0])
            found["captured number"] = is_of_own_data(known + variable)

        inner()

    step(tf.constant([1.0]), tf.constant(0.1))
    own = {"data", "called", "captured data"}
    assert {name for name, is_own in found.items() if is_own} == own
    assert set(found) == own | {
        *("number", "rate", "variable", "condition", "called number"),
        *("summed", "called sum", "own gradient", "captured number"),
    }
