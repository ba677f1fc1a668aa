"""What the comparisons of speed train, made with whichever Keras is given.

Each workload has the same shapes, batches and optimizer as its twin in workloads_torch.py.
"""

from __future__ import annotations

from typing import Any

import cnn
import numpy as np

PER_WORKER = {"cnn": cnn.PER_WORKER, "transformer": 8, "recommender": 512}
STEPS = {"cnn": 60, "transformer": 8, "recommender": 20}  # an epoch
EPOCHS = 4  # the first one traces and is left out
WORDS, LENGTH, WIDTH, HEADS, BLOCKS = 256, 128, 256, 4, 4
ENTITIES, FACTORS, TOWER = 1_000_000, 32, 64
RATE = 0.01


def compiled(keras: Any, name: str) -> Any:
    """Returns a workload's model, compiled; made in the current strategy's scope."""
    return {"cnn": cnn.compiled, "transformer": _transformer, "recommender": _recommender}[name](
        keras
    )


def samples(name: str) -> tuple[Any, np.ndarray]:
    """Returns inputs and labels: noise, the same always.

    Returns:
      cnn: float32 [6400, 28, 28, 1] and labels 0 to 9. transformer: int32 [512, 128] twice, the
      second the next words. recommender: a tuple of int32 [65536], users and items, and float32
      [65536, 1] of 0 and 1.
    """
    if name == "cnn":
        return cnn.samples()
    random = np.random.default_rng(0)
    if name == "transformer":
        words = random.integers(0, WORDS, (512, LENGTH + 1)).astype(np.int32)
        return words[:, :-1], words[:, 1:]
    users, items = random.integers(0, ENTITIES, (2, 65536)).astype(np.int32)
    return (users, items), random.integers(0, 2, (65536, 1)).astype(np.float32)


def _transformer(keras: Any) -> Any:
    layers = keras.layers
    words = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, WIDTH)(words)
    for _ in range(BLOCKS):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(y, y, use_causal_mask=True)
        x = layers.Add()([x, y])
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="relu")(y))
        x = layers.Add()([x, y])
    model = keras.Model(words, layers.Dense(WORDS)(x))
    return _with_loss(keras, model, keras.losses.SparseCategoricalCrossentropy(from_logits=True))


def _recommender(keras: Any) -> Any:
    layers = keras.layers
    inputs, towers = [], []
    for _ in range(2):
        ids = keras.Input((), dtype="int32")
        x = layers.Dense(TOWER, activation="relu")(layers.Embedding(ENTITIES, FACTORS)(ids))
        inputs.append(ids)
        towers.append(layers.Dense(FACTORS)(x))
    model = keras.Model(inputs, layers.Dot(axes=1)(towers))
    return _with_loss(keras, model, keras.losses.BinaryCrossentropy(from_logits=True))


def _with_loss(keras: Any, model: Any, loss: Any) -> Any:
    model.compile(optimizer=keras.optimizers.SGD(RATE), loss=loss)
    return model
