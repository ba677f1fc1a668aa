"""What the callback scripts share: a small model on the same data, and their result file."""

import json
import os
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tfrun.patches.apply import apply

RANK = int(os.environ["RANK"])
FOLDER = Path(os.environ["TEST_FOLDER"])

apply()
strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.random.RandomState(0).rand(64, 4).astype("float32")
y = x.sum(axis=1, keepdims=True)


def dataset(batch=16):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)


def model_of(cls=keras.Sequential, optimizer="adam", **compiling):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = cls([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile(optimizer, "mse", metrics=["mae"], **compiling)
    return model


def train(result, name, *callbacks, model=None, epochs=6):
    """Trains, and enters in `result` all that has to be equal on all workers."""
    # Plain SGD: most of a short training is tracing, and Adam's update is most of a trace.
    model = model or model_of(optimizer="sgd")
    history = model.fit(dataset(), epochs=epochs, callbacks=list(callbacks)).history
    result[name] = {
        "epochs": len(history["loss"]),
        "steps": int(model.optimizer.iterations.numpy()),
        "weights": [float(np.sum(np.abs(w.astype("float64")))) for w in model.get_weights()],
        "rate": float(model.optimizer.learning_rate.numpy()),
        "history": history,
    }


def listing(folder):
    """Every file below FOLDER/folder, as sorted relative names."""
    root = FOLDER / folder
    return sorted(str(f.relative_to(root)) for f in root.rglob("*") if f.is_file())


def finish(**result):
    Path(os.environ["TFRUN_TEST_OUT"]).write_text(json.dumps(result))


def barrier():
    """All workers are here, so files of the chief that were written before it can be counted."""
    strategy.reduce("SUM", tf.constant([1.0]), axis=None).numpy()
