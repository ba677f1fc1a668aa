"""What a step assigns: of this worker's own part of the data, or the same on all."""

from __future__ import annotations

import tensorflow as tf

from tfrun.engine.own_variables import is_of_own_data


def test_what_comes_of_the_data_is_each_workers_own() -> None:
    variable, known = tf.Variable(2.0), tf.constant(3.0)
    found: dict[str, bool] = {}

    @tf.function
    def step(data: tf.Tensor) -> None:
        found["data"] = is_of_own_data(tf.reduce_sum(data) * 0.5)
        found["noise"] = is_of_own_data(tf.random.uniform([]) + variable)
        found["number"] = is_of_own_data(tf.constant(1.0))
        found["variable"] = is_of_own_data(variable * 0.9 + known)
        (summed,) = tf.numpy_function(lambda x: [x], [data], [tf.float32])
        found["summed"] = is_of_own_data(summed)

        @tf.function
        def inner() -> None:
            found["captured data"] = is_of_own_data(data[0])
            found["captured number"] = is_of_own_data(known + variable)

        inner()

    step(tf.constant([1.0]))
    own = {"data", "noise", "captured data"}
    assert {name for name, is_own in found.items() if is_own} == own
    assert set(found) == own | {"number", "variable", "summed", "captured number"}
