"""Optimizers that assign when they are built: `optimizer_builds.py [first]` builds them before."""

import sys

import keras
import numpy as np

import tfrun


class Slow(keras.optimizers.SGD):
    """Pulls weights to where they were in the beginning."""

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self._first = self.add_optimizer_variables(variables, "first")
            for first, variable in zip(self._first, variables, strict=True):
                self.assign(first, variable + 0.0)

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate)
        first = self._first[self._get_variable_index(variable)]
        self.assign(variable, 0.9 * variable + 0.1 * first)


x = np.random.RandomState(0).normal(size=(48, 6)).astype("float32")
for optimizer in (keras.optimizers.ScheduleFreeAdamW(0.02), Slow(0.1)):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    if sys.argv[1:] == ["first"]:
        optimizer.build(model.trainable_variables)
    model.fit(x, x[:, :1], batch_size=12, epochs=3, verbose=0, shuffle=False)
    if tfrun.world().is_chief:
        found = sum(float(np.abs(weights).sum()) for weights in model.get_weights())
        print("found", type(optimizer).__name__, f"{found:.4f}", flush=True)
