"""What a user does wrong with data, on several workers: `data_wrong.py CASE`.

"build": all that is found when a dataset is made; each worker writes the texts. Others train and
fail, or leave samples out; the weights then count the uses of each sample.
"""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

HERE, CASE = tfrun.world(), sys.argv[1]
SAMPLES = 40
Data = tfrun.Dataset


def written(name, kind=None):
    """A file of the numbers of its records, on every worker the same."""
    path = Path(f"{name}-{HERE.rank}")
    with tf.io.TFRecordWriter(str(path), kind) as writer:
        for number in range(SAMPLES):
            writer.write(f"{number:03}".encode())
    return path


def text_of(make):
    try:
        make()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def small_model():
    with tfrun.strategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


def build():
    model = small_model()
    empty, rows = np.zeros((0, 3)), np.zeros((8, 3))
    broken = written("cut-off")
    os.truncate(broken, broken.stat().st_size - 5)
    gone = written("gone")
    data = Data.from_tfrecords(str(gone), batch_size=4)
    os.truncate(gone, 10)
    batch = rows[:4], rows[:4, :1]
    nothing = tf.data.Dataset.from_tensors(batch).filter(lambda x, y: x[0, 0] > 1)

    def loop():
        state = tfrun.TrainState(model=model, optimizer=model.optimizer)
        list(state.steps(nothing, epochs=1))

    spent = (batch for _ in range(3))
    cases = {
        "no batch: fit": lambda: model.fit(nothing),
        "no batch: evaluate": lambda: model.evaluate(nothing),
        "no batch: predict": lambda: model.predict(nothing),
        "no batch: steps": loop,
        # The first epoch has had all; the others train nothing, as Keras warns.
        "spent": lambda: model.fit(spent, steps_per_epoch=3, epochs=3),
        "validation": lambda: model.fit(*batch, epochs=2, validation_data=nothing),
        "empty": lambda: Data.from_arrays(empty, batch_size=1),
        "lengths": lambda: Data.from_arrays({"x": rows, "y": rows[:5]}, batch_size=2),
        "batch": lambda: Data.from_arrays(rows, batch_size=9),
        "no file": lambda: Data.from_tfrecords("nowhere-*", batch_size=1),
        "gzip": lambda: Data.from_tfrecords(str(written("gzip", "GZIP")), batch_size=1),
        "cut off": lambda: Data.from_tfrecords(str(broken), batch_size=1),
        "vanished": lambda: list(data),
        "position": lambda: setattr(data, "position", tfrun.Position(step=99)),
    }
    Path(f"{HERE.rank}.json").write_text(json.dumps({k: text_of(f) for k, f in cases.items()}))


class Predicted(keras.losses.Loss):
    """Lowers a sample's weight by 1 / batch each time that it is used."""

    def call(self, y_true, y_pred):
        return y_pred[:, 0]


class Die(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if HERE.round == 0 and HERE.rank == 1 and batch == 3 and "KILL" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)


def parsed(record):
    number = tf.strings.to_number(record, tf.int32)
    return tf.one_hot(number, SAMPLES), number


def train(on_error):
    """One file, read by all workers; record 33 is damaged."""
    path = Path("records")
    data = Data.from_tfrecords(str(path), parsed, batch_size=8, on_error=on_error)
    with tfrun.strategy().scope():
        inputs = keras.Input((SAMPLES,))
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = keras.Model(inputs, dense(inputs))
        model.compile(keras.optimizers.SGD(1.0), Predicted())
    model.fit(data, epochs=2, verbose=0, callbacks=[Die()])
    counts = np.round(-model.get_weights()[0][:, 0] * 8, 3).tolist()
    if HERE.is_chief:
        Path("counts.json").write_text(json.dumps(counts))


{
    "build": build,
    "raise": lambda: train("raise"),
    "skip": lambda: train("skip"),
}[CASE]()
