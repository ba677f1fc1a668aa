"""Trains on the same data whatever the number of workers; rank 0 writes what came out."""

import json
import os
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun
from tfrun.data.dataset import Dataset
from tfrun.data.order.position import Position

out, samples, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
begin = Position(epoch=int(sys.argv[4]), step=int(sys.argv[5])) if len(sys.argv) > 4 else None

rng = np.random.default_rng(0)
x = rng.normal(size=(samples, 5)).astype("float32")
y = (x.sum(1, keepdims=True) > 0).astype("float32")
ids = np.arange(samples, dtype="float32")[:, None]


def noisy(features, target, seed):
    noise = tf.random.stateless_normal([5], seed, stddev=0.05)
    return {"x": features["x"] + noise, "id": features["id"]}, target


if os.environ.get("WORLD_SIZE", "1") == "1":
    strategy = tf.distribute.get_strategy()
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    keras.utils.set_random_seed(3)
    features = keras.Input((5,), name="x")
    identity = keras.Input((1,), name="id")
    hidden = keras.layers.Dense(8, activation="tanh")(features)
    output = keras.layers.Dense(1, activation="sigmoid")(hidden)
    model = keras.Model({"x": features, "id": identity}, output)
    model.compile(
        keras.optimizers.SGD(0.5, momentum=0.9), "binary_crossentropy", metrics=["accuracy"]
    )

train = Dataset.from_arrays(({"x": x, "id": ids}, y), batch_size=batch, shuffle=True, seed=1)
train = train.map(noisy)
if begin is not None:
    train.position = begin
valid = Dataset.from_arrays(({"x": x, "id": ids}, y), batch_size=batch)


class Die(keras.callbacks.Callback):
    """The last worker kills itself in the second epoch, when KILL is set."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        here = tfrun.world()
        is_place = (here.round, here.rank + 1, self.epoch, batch) == (0, here.size, 1, 2)
        if "KILL" in os.environ and is_place:
            os.kill(os.getpid(), signal.SIGKILL)


history = model.fit(
    train,
    epochs=3,
    initial_epoch=begin.epoch if begin else 0,
    validation_data=valid,
    callbacks=[Die()],
    verbose=0,
).history
scores = model.evaluate(valid, verbose=0)
predictions = model.predict(valid, verbose=0)
position = [train.position.epoch, train.position.step]

# A custom loop sees the same global batches: each worker sends the ids of its part.
loop = strategy.experimental_distribute_dataset(train)


@tf.function
def seen(batch):
    def on_replica(features, _):
        own = tf.cast(features["id"][:, 0], tf.int32)
        return tf.math.bincount(own, minlength=samples, maxlength=samples)

    return strategy.reduce("SUM", strategy.run(on_replica, args=batch), axis=None)


per_step = [np.flatnonzero(seen(one).numpy()).tolist() for one in loop]
expected = [
    sorted(train.sample_ids(position[0], step).tolist()) for step in range(train.steps_per_epoch)
]
if tfrun.world().rank == 0:
    out.write_text(
        json.dumps(
            {
                "history": {name: [float(v) for v in values] for name, values in history.items()},
                "scores": [float(score) for score in scores],
                "weights": np.concatenate([w.ravel() for w in model.get_weights()]).tolist(),
                "predictions": predictions[:, 0].tolist(),
                "position": position,
                "same_ids": per_step == expected,
                "steps": int(model.optimizer.iterations.numpy()),
            }
        )
    )
else:
    model.get_weights(), model.optimizer.iterations.numpy()
