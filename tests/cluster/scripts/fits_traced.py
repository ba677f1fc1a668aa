"""One model, many calls: with callbacks that look at batches and without; how often each traces.

Prints what each call has traced, and what the callbacks have seen.
"""

import json

import keras
import numpy as np

keras.utils.set_random_seed(1)
traced = []


class Layer(keras.layers.Dense):
    def call(self, x):
        traced.append(1)
        return super().call(x)


class Looks(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        seen.append([float(logs["loss"]), float(logs["auc"])])

    on_test_batch_end = on_train_batch_end


class Passive(keras.callbacks.Callback):
    pass


model = keras.Sequential([keras.Input((8,)), Layer(4, "relu"), keras.layers.Dense(1, "sigmoid")])
model.compile("sgd", "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
x = np.random.RandomState(0).rand(60, 8).astype("float32")
y = (x.sum(1, keepdims=True) > 4).astype("float32")
given = {"x": x, "y": y, "batch_size": 20, "verbose": 0}
made, seen = [], []
for looks, validates in [(0, 0), (1, 0), (0, 0), (1, 0), (0, 1), (1, 1), (0, 1), (1, 1)]:
    before = len(traced)
    valid = {"validation_data": (x, y), "validation_batch_size": 30} if validates else {}
    callbacks = [Looks() if looks else Passive()]
    model.fit(**given, **valid, epochs=2, shuffle=False, callbacks=callbacks)
    made.append(len(traced) - before)
for callbacks in ([], [Looks()], []):
    before = len(traced)
    model.evaluate(**given, callbacks=callbacks)
    made.append(len(traced) - before)
print("MADE", json.dumps({"traces": made, "seen": seen}), flush=True)
