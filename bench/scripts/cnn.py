"""The seed CNN and its samples: what the benchmarks train, whichever Keras they train it with."""

from __future__ import annotations

from typing import Any

import numpy as np

SAMPLES, PER_WORKER = 6400, 64


def compiled(keras: Any) -> Any:
    """Returns the model, made with this Keras in the current strategy's scope."""
    model = keras.Sequential(
        [
            keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Returns noise of shape [6400, 28, 28, 1], float32, and labels of 0 to 9, the same always."""
    random = np.random.default_rng(0)
    return random.random((SAMPLES, 28, 28, 1), np.float32), random.integers(0, 10, SAMPLES)
