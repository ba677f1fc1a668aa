"""What the comparisons of speed train, made with whichever Keras is given.

Each workload has the same shapes, batches and optimizer as its twin in workloads_torch.py.
BENCH_EPOCHS and BENCH_EPOCH_STEPS state how many epochs, of how many steps.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import cnn
import numpy as np


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Those of a transformer: words known and in a sample, width, heads, blocks."""

    words: int
    length: int
    width: int
    heads: int
    blocks: int


TRANSFORMERS = {
    "transformer": Sizes(words=256, length=128, width=256, heads=4, blocks=4),
    "decoder": Sizes(words=8192, length=64, width=512, heads=8, blocks=8),  # 34 million weights
    "encoder": Sizes(words=30522, length=32, width=768, heads=12, blocks=12),  # BERT-base's
}
PIXELS = {"resnet50": 96, "resnet50-224": 224}  # height and width of a picture
PER_WORKER = {"cnn": cnn.PER_WORKER, "transformer": 8, "recommender": 512}
PER_WORKER |= {"resnet50": 8, "resnet50-224": 4, "encoder": 2, "decoder": 2}
STEPS = {"cnn": 60, "transformer": 8, "recommender": 20}  # an epoch
STEPS |= {"resnet50": 3, "resnet50-224": 2, "encoder": 3, "decoder": 5}
if stated := os.environ.get("BENCH_EPOCH_STEPS"):
    STEPS = dict.fromkeys(STEPS, int(stated))
EPOCHS = int(os.environ.get("BENCH_EPOCHS", "4"))  # the first one is left out
ENTITIES, FACTORS, TOWER = 1_000_000, 32, 64
CLASSES, KINDS = 1000, 2  # of pictures, of the encoder's texts
RATE, ADAM_RATE, MOMENTUM = 0.01, 1e-4, 0.9


def compiled(keras: Any, name: str) -> Any:
    """Returns a workload's model, compiled; made in the current strategy's scope."""
    if name == "cnn":
        return cnn.compiled(keras)
    optimizers, losses = keras.optimizers, keras.losses
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "recommender":
        model, loss = _recommender(keras), losses.BinaryCrossentropy(from_logits=True)
        optimizer = optimizers.SGD(RATE)
    elif name in PIXELS:
        shape = (PIXELS[name], PIXELS[name], 3)
        settings = {"weights": None, "classes": CLASSES, "classifier_activation": None}
        model = keras.applications.ResNet50(input_shape=shape, **settings)
        optimizer = optimizers.SGD(RATE, momentum=MOMENTUM)
    elif name == "encoder":
        model, optimizer = _encoder(keras), optimizers.Adam(ADAM_RATE)
    else:
        model = _decoder(keras, TRANSFORMERS[name])
        optimizer = optimizers.Adam(ADAM_RATE) if name == "decoder" else optimizers.SGD(RATE)
    model.compile(optimizer=optimizer, loss=loss)
    return model


def samples(name: str) -> tuple[Any, np.ndarray]:
    """Returns inputs and labels: noise, the same always.

    Returns:
      cnn: float32 [6400, 28, 28, 1] and labels 0 to 9. resnet50: float32 [64, 96, 96, 3], or 224,
      and labels 0 to 999. transformer, decoder: int32 [512, length] twice, the second the next
      words. encoder: int32 [512, 32] and labels 0 and 1. recommender: a tuple of int32 [65536],
      users and items, and float32 [65536, 1] of 0 and 1.
    """
    if name == "cnn":
        return cnn.samples()
    random = np.random.default_rng(0)
    if name in PIXELS:
        pictures = random.random((64, PIXELS[name], PIXELS[name], 3), np.float32)
        return pictures, random.integers(0, CLASSES, 64)
    if name in TRANSFORMERS:
        sizes = TRANSFORMERS[name]
        words = random.integers(0, sizes.words, (512, sizes.length + 1)).astype(np.int32)
        if name == "encoder":
            return words[:, :-1], random.integers(0, KINDS, 512)
        return words[:, :-1], words[:, 1:]
    users, items = random.integers(0, ENTITIES, (2, 65536)).astype(np.int32)
    return (users, items), random.integers(0, 2, (65536, 1)).astype(np.float32)


def _decoder(keras: Any, sizes: Sizes) -> Any:
    layers, width = keras.layers, sizes.width
    words = keras.Input((sizes.length,), dtype="int32")
    x = layers.Embedding(sizes.words, width)(words)
    for _ in range(sizes.blocks):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.MultiHeadAttention(sizes.heads, width // sizes.heads)(y, y, use_causal_mask=True)
        x = layers.Add()([x, y])
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.Dense(width)(layers.Dense(4 * width, activation="relu")(y))
        x = layers.Add()([x, y])
    return keras.Model(words, layers.Dense(sizes.words)(x))


def _encoder(keras: Any) -> Any:
    """BERT-base as it is fine-tuned: a norm after each part, and a class from the first word."""
    layers, sizes = keras.layers, TRANSFORMERS["encoder"]
    width = sizes.width

    class Positions(layers.Layer):
        def build(self, shape):
            shape = (sizes.length, width)
            self.table = self.add_weight(name="table", shape=shape, initializer="uniform")

        def call(self, inputs):
            return inputs + self.table

    words = keras.Input((sizes.length,), dtype="int32")
    x = Positions()(layers.Embedding(sizes.words, width)(words))
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    for _ in range(sizes.blocks):
        y = layers.MultiHeadAttention(sizes.heads, width // sizes.heads)(x, x)
        x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, y]))
        y = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))
        x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, y]))
    first = layers.Flatten()(layers.Cropping1D((0, sizes.length - 1))(x))
    return keras.Model(words, layers.Dense(KINDS)(layers.Dense(width, activation="tanh")(first)))


def _recommender(keras: Any) -> Any:
    layers = keras.layers
    inputs, towers = [], []
    for _ in range(2):
        ids = keras.Input((), dtype="int32")
        x = layers.Dense(TOWER, activation="relu")(layers.Embedding(ENTITIES, FACTORS)(ids))
        inputs.append(ids)
        towers.append(layers.Dense(FACTORS)(x))
    return keras.Model(inputs, layers.Dot(axes=1)(towers))
