"""What Keras does with a mask; tests/scripts/alone/every_layer.py trains with it."""

from __future__ import annotations

import inspect

import keras
import pytest
import tensorflow as tf


def test_keras_still_forgets_the_other_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """When this fails, it does not: patches/masked_statistics.py can go."""
    summed: list[tf.Tensor] = []

    def all_reduce(self, operation, value):
        summed.append(value)
        return value

    monkeypatch.setattr(tf.distribute.ReplicaContext, "all_reduce", all_reduce)
    layer = keras.layers.BatchNormalization(synchronized=True)
    layer.build((2, 3, 4))
    moments = inspect.unwrap(keras.layers.BatchNormalization._moments)
    found = []
    for mask in (None, tf.ones((2, 3), tf.bool)):
        tf.distribute.OneDeviceStrategy("CPU:0").run(moments, (layer, tf.ones((2, 3, 4)), mask))
        found.append(len(summed))
        summed.clear()
    assert found[0] and not found[1]
