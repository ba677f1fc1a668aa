"""A chief-only callback in a script that names no strategy; nobody joins what the chief does."""

import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

x = np.random.RandomState(0).rand(64, 4).astype("float32")
y = x.sum(axis=1, keepdims=True)
seen = {}


def unbuilt():
    return keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])


keras.utils.set_random_seed(1)
model = unbuilt()
model.compile("adam", "mse")


class Report(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        seen["trained"] = self.model.evaluate(x, y, verbose=0)
        seen["by_hand"] = float(np.mean((self.model.predict(x, verbose=0) - y) ** 2))
        own = unbuilt()
        own.compile("sgd", "mse")
        seen["own"] = [len(own.predict(x, verbose=0)), own.evaluate(x, y, verbose=0)]
        seen["on_batch"] = unbuilt().predict_on_batch(x).shape[0]
        own.fit(x, y, verbose=0)
        with tf.distribute.get_strategy().scope():
            seen["in_scope"] = len(unbuilt().predict(x, verbose=0))
        seen["strategies"] = own.distribute_strategy.num_replicas_in_sync


history = model.fit(x, y, batch_size=16, epochs=2, callbacks=[tfrun.ChiefOnly(Report())], verbose=0)
result = {
    "seen": seen,
    "loss": history.history["loss"],
    "on_batch": model.predict_on_batch(x[:8]).shape[0],  # each worker's own business
    "replicas": model.distribute_strategy.num_replicas_in_sync,
    "weights": [float(np.sum(np.abs(w))) for w in model.get_weights()],
}
Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(result))
