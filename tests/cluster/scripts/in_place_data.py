"""Trainings with all kinds of data, an evaluation and a prediction; in each a worker dies.

in_place_data.py dies|lives: in each of PLACES the last worker that is left, or nobody.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.job.settings import settings

PLACES = ("pipeline", "generator", "PyDataset", "between", "evaluate", "predict")
BATCH, STEPS = 12, 4
keras.utils.set_random_seed(1)
random = np.random.default_rng(0)
x = random.normal(size=(BATCH * STEPS, 6)).astype("float32")
y = random.integers(0, 3, size=len(x))


def dies(place):
    """Ends the last worker, the first time that the place is reached."""
    here, reached = tfrun.world(), Path(os.environ["TFRUN_RUN_DIR"], place)
    is_one = sys.argv[1] == "dies" and here.rank == here.size - 1 and not settings().rehearses
    if is_one and not reached.exists():
        reached.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Dies(keras.callbacks.Callback):
    def __init__(self, place, hook):
        super().__init__()
        setattr(self, hook, lambda number, logs=None: number == 1 and dies(place))


def batches():
    draw = np.random.RandomState(7)
    while True:
        rows = draw.permutation(len(x))[:BATCH]
        yield x[rows], y[rows]


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return x[rows], y[rows]


def shuffled():
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=3).batch(BATCH)


inputs = keras.Input((6,))
hidden = keras.layers.BatchNormalization()(keras.layers.Dense(8, activation="relu")(inputs))
model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dropout(0.3)(hidden)))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
DATA = {
    # In a step; in a validation, the second one; when an epoch ends.
    "pipeline": (shuffled(), {"validation_data": shuffled()}, "on_train_batch_begin"),
    "generator": (
        batches(),
        {"validation_data": batches(), "validation_steps": 3, "steps_per_epoch": STEPS},
        "on_test_batch_end",
    ),
    "PyDataset": (Batches(), {"validation_data": (x[:30], y[:30])}, "on_epoch_end"),
}
found = []
for kind, (data, more, hook) in DATA.items():
    history = model.fit(data, epochs=3, verbose=0, callbacks=[Dies(kind, hook)], **more)
    found.append(sorted(history.history.items()))
    if kind == "PyDataset":
        dies("between")
call = Dies("evaluate", "on_test_batch_end")
found.append(model.evaluate(x, y, batch_size=BATCH, verbose=0, callbacks=[call]))
call = Dies("predict", "on_predict_batch_end")
found.append(model.predict(x, batch_size=BATCH, verbose=0, callbacks=[call]).sum(axis=1).tolist())
weights = b"".join(np.ascontiguousarray(w).tobytes() for w in model.get_weights())
print("BITS", hashlib.sha256(weights).hexdigest(), found, flush=True)
