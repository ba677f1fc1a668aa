"""No data, little data, and single batches; also run by plain `python`."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

keras.config.set_floatx("float64")
IN_JOB = "TFRUN_ROUND" in os.environ
scope = tf.distribute.MultiWorkerMirroredStrategy().scope if IN_JOB else contextlib.nullcontext
X = np.random.default_rng(0).normal(size=(23, 4))
Y = X.sum(axis=1, keepdims=True)
seen: dict = {}


def model():
    with scope():
        draw = keras.initializers.RandomNormal(seed=4)
        made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer=draw)])
        made.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
    return made


def note(name, function, *args, **kwargs):
    try:
        found = function(*args, verbose=0, **kwargs)
    except Exception as error:
        seen[name] = str(error).split(" ")[0]
        return
    found = getattr(found, "history", found)
    seen[name] = keras.tree.map_structure(lambda leaf: np.asarray(leaf).tolist(), found)


def pipeline(*arrays):
    return tf.data.Dataset.from_tensor_slices(arrays if len(arrays) > 1 else arrays[0]).batch(4)


def generator(*arrays):
    for low in range(0, len(arrays[0]), 4):
        yield tuple(array[low : low + 4] for array in arrays)


warnings.simplefilter("ignore")  # Keras says that data has ended
made = model()
batches = [made.train_on_batch(X[:7], Y[:7]) for _ in range(3)]
batches += [made.test_on_batch(X, Y), made.predict_on_batch(X[:5]), made.predict_on_batch(X[:1])]
batches += [made(X[:3]), made.get_weights()]
seen["on batches"] = keras.tree.map_structure(lambda leaf: np.asarray(leaf).tolist(), batches)
with scope():
    unbuilt = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
seen["predict_on_batch builds"] = unbuilt.predict_on_batch(X[:5]).tolist()
unbuilt.compile(optimizer="sgd", loss="mse")
note("what predict_on_batch has built is trained", unbuilt.fit, X, Y, shuffle=False)
for n in (1, 2, 5):
    note(f"{n} rows predicted", made.predict, X[:n])
    note(f"{n} rows predicted, pipeline", made.predict, pipeline(X[:n]))
    note(f"{n} rows predicted, generator", made.predict, generator(X[:n]))
    note(f"{n} rows evaluated", made.evaluate, X[:n], Y[:n])
    note(f"{n} rows trained", model().fit, X[:n], Y[:n], shuffle=False, epochs=2)
    note(f"{n} rows trained, generator", model().fit, generator(X[:n], Y[:n]))
note("nothing predicted", made.predict, X[:0])
note("nothing predicted, pipeline", made.predict, pipeline(X[:0]))
note("nothing evaluated", model().evaluate, X[:0], Y[:0])
note("nothing evaluated, pipeline", model().evaluate, pipeline(X[:0], Y[:0]))
note("nothing validated", model().fit, X, Y, shuffle=False, validation_data=(X[:0], Y[:0]))
note("nothing trained", model().fit, X[:0], Y[:0])
note("nothing trained, pipeline", model().fit, pipeline(X[:0], Y[:0]))
too_many = {"steps_per_epoch": 9, "epochs": 2}
note("too many steps", model().fit, X, Y, batch_size=4, shuffle=False, **too_many)
note("too many steps, pipeline", model().fit, pipeline(X, Y), **too_many)
note("too many steps, generator", model().fit, generator(X, Y), **too_many)

Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(seen))
