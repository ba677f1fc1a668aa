"""Models and optimizers of every kind whose variables a checkpoint holds; without tfrun."""

from __future__ import annotations

import os

import keras
import numpy as np
import tensorflow as tf

RNG = np.random.RandomState(0)
X = RNG.rand(24, 6).astype("float32")
Y = RNG.rand(24, 3).astype("float32")
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def chosen() -> list[str]:
    """TensorFlow's collectives cannot broadcast the first values of bfloat16 variables."""
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    return [name for name in CASES if alone or name != "bfloat16_weights"]


def layers(**options):
    return [
        keras.layers.Dense(8, activation="tanh", **options),
        keras.layers.BatchNormalization(**options),
        keras.layers.Dropout(0.3, **options),
        keras.layers.Dense(3, **options),
    ]


class Subclassed(keras.Model):
    """Layers in a list, one used twice, a variable of TensorFlow and a metric of its own."""

    def __init__(self):
        super().__init__()
        self.blocks = [layers(), [keras.layers.Dense(6, name="same"), keras.layers.Dense(6)]]
        self.again = self.blocks[1][0]
        self.count = tf.Variable(3.0, trainable=False, name="count/of.mine")
        self.seen = keras.metrics.Mean(name="seen")
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

    def call(self, x, training=False):
        for layer in [*self.blocks[1], self.again, *self.blocks[0]]:
            x = layer(x, training=training) if "drop" in layer.name else layer(x)
        return x * self.scale


@case
def sequential_momentum():
    model = keras.Sequential([keras.Input((6,)), *layers()])
    return model, keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)


@case
def functional_adam():
    inputs = keras.Input((6,))
    a, b, c, d = layers()
    hidden = c(b(a(inputs)))
    model = keras.Model(inputs, keras.layers.add([d(hidden), keras.layers.Dense(3)(inputs)]))
    return model, keras.optimizers.Adam(1e-2, amsgrad=True)


@case
def subclassed_moving_average():
    model = Subclassed()
    model(X[:2])  # its layers' variables are made
    return model, keras.optimizers.AdamW(1e-2, use_ema=True, ema_overwrite_frequency=2)


@case
def loss_scale():
    model = keras.Sequential([keras.Input((6,)), *layers()])
    inner = keras.optimizers.Adam(1e-2)
    return model, keras.optimizers.LossScaleOptimizer(inner, dynamic_growth_steps=3)


@case
def mixed_precision():
    model = keras.Sequential([keras.Input((6,)), *layers(dtype="mixed_float16")])
    return model, keras.optimizers.SGD(0.1, momentum=0.9)


@case
def bfloat16_weights():
    model = keras.Sequential([keras.Input((6,)), *layers(dtype="bfloat16")])
    return model, keras.optimizers.SGD(0.1, momentum=0.9)


def compiled(name: str) -> keras.Model:
    keras.utils.set_random_seed(5)
    model, optimizer = CASES[name]()
    model.compile(optimizer=optimizer, loss="mse", metrics=["mae"])
    return model


def train(model: keras.Model) -> None:
    model.fit(X, Y, batch_size=8, epochs=1, shuffle=False, verbose=0)


def named(model: keras.Model) -> dict[str, keras.Variable]:
    """What training changes, by a number: names of layers differ from process to process."""
    found = {f"model/{i}": v for i, v in enumerate(model.variables)}
    found |= {f"optimizer/{i}": v for i, v in enumerate(model.optimizer.variables)}
    if isinstance(model, Subclassed):
        found["model/count"] = model.count
    return found


def local(variable) -> np.ndarray:
    """This worker's value, which takes no collective to read."""
    value = variable.value if isinstance(variable, keras.Variable) else variable
    if isinstance(value, tf.distribute.DistributedValues):
        value = value.distribute_strategy.experimental_local_results(value)[0]
    return value.numpy()


def listed(arrays) -> dict[str, list]:
    """As JSON, exactly: float32 and shorter ones fit into Python's floats."""
    return {name: np.asarray(a).astype("float64").ravel().tolist() for name, a in arrays.items()}
