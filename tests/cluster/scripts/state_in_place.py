"""Tells where the model's state stands in memory, step by step, in two `fit` with validation."""

import keras
import numpy as np

import tfrun
from tfrun.engine import host_collective, variable_values

keras.utils.set_random_seed(1)
strategy = tfrun.strategy()
with strategy.scope():
    model = keras.Sequential(
        [keras.Input((256,)), keras.layers.Dense(256), keras.layers.BatchNormalization()]
    )
    model.compile("adam", "mse", metrics=["mae"])
x, KERNEL = np.random.default_rng(0).random((64, 256), np.float32), 256 * 256 * 4


class Looks(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.seen = []
        if self.model.optimizer.iterations.numpy():  # else there is more to come
            self.look()

    def on_train_batch_end(self, batch, logs=None):
        self.look()

    def look(self):
        found = variable_values.state_variables(self.model)
        trained = {n: v for n, v in found.items() if "kernel" in n}
        held = variable_values.hold(list(trained.values()))
        places = [np.asarray(value).ctypes.data for value in held]
        free = host_collective.calls_of(strategy).group._packer._buffers._free
        self.seen.append((*places, sum(len(memory) > KERNEL for memory in free)))


for number in range(2):
    looks = Looks()
    options = {"validation_data": (x, x), "epochs": 3, "batch_size": 16, "verbose": 0}
    model.fit(x, x, callbacks=[looks], **options)
    places, sums = {seen[:-1] for seen in looks.seen}, {seen[-1] for seen in looks.seen}
    print("FOUND", number, len(looks.seen), *map(len, places), "free", *sums, flush=True)
