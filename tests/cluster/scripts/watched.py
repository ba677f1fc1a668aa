"""Trains until a file says what is to happen; `FILES` is the folder where it is looked for."""

import os
import time
from pathlib import Path

import keras
import numpy as np

import tfrun

FILES = Path(os.environ["FILES"])


class Watched(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)
        if (FILES / "fail").exists() and tfrun.world().rank == 1:
            raise ValueError("there is <b>no</b> such shape")

    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch} is over on worker {tfrun.world().rank}", flush=True)


with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
x = np.random.RandomState(0).rand(320, 8).astype("float32")
y = x.sum(1)
data = (x[:64], y[:64])
model.fit(x, y, batch_size=16, epochs=500, verbose=2, callbacks=[Watched()], validation_data=data)
