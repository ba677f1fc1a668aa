# ruff: noqa: PTH103, PTH118, PTH107
"""Saves and loads under a folder by the time, and by `tempfile`, as TensorFlow's tutorials do."""

import datetime
import os
import tempfile
import uuid

import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.random.randn(60, 5)
y = x.sum(axis=1, keepdims=True)


def build():
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse")
    return model


model = build()
run = os.path.join("runs", datetime.datetime.now().strftime("%Y%m%d-%H%M%S.%f"))
os.makedirs(run)
best = os.path.join(run, "best.keras")
weights = os.path.join(run, "last.weights.h5")
model.fit(
    x,
    y,
    batch_size=12,
    epochs=3,
    shuffle=False,
    verbose=0,
    callbacks=[
        keras.callbacks.ModelCheckpoint(best, monitor="loss", save_best_only=True),
        keras.callbacks.ModelCheckpoint(weights, save_weights_only=True),
        keras.callbacks.CSVLogger(os.path.join(run, "log.csv")),
    ],
)
print("best =", keras.models.load_model(best).evaluate(x, y, verbose=0))
again = build()
again.load_weights(weights)
print("last =", again.evaluate(x, y, verbose=0))

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.keras")
    callback = keras.callbacks.ModelCheckpoint(path, monitor="loss", save_best_only=True)
    model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0, callbacks=[callback])
    loaded = keras.models.load_model(path)
    print("temporary =", loaded.evaluate(x, y, verbose=0))
    model.save_weights(os.path.join(folder, "w.weights.h5"))
    again.load_weights(os.path.join(folder, "w.weights.h5"))
    print("weights =", again.evaluate(x, y, verbose=0))

name = f"model-{uuid.uuid4()}.keras"
model.save(name)
print("saved =", keras.models.load_model(name).evaluate(x, y, verbose=0))
os.remove(name)
