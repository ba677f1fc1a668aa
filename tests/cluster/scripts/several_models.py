"""Two models with a `fit` each, a loop that trains both, and the first one's second `fit`.

DIE is "call:step": there the chief kills itself. Every step that the chief does is a line of
seen.txt, "call step"; at the end the digest of all weights is printed.
"""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

CHIEF = tfrun.world().is_chief
DIE = os.environ.get("DIE", "")
rng = np.random.RandomState(0)
X = rng.rand(160, 8).astype("float32")
seen = Path(os.environ["TEST_FOLDER"], "seen.txt")


def stepped(call, step):
    if not CHIEF:
        return
    with seen.open("a") as file:
        print(call, step, file=file)
    if f"{call}:{step}" == DIE:
        os.kill(os.getpid(), signal.SIGKILL)


class Look(keras.callbacks.Callback):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def on_train_batch_end(self, batch, logs=None):
        stepped(self.call, int(self.model.optimizer.iterations.numpy()))


def build(units, optimizer):
    inputs = keras.Input((8,))
    hidden = keras.layers.Dropout(0.2)(keras.layers.Dense(units, activation="relu")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(optimizer=optimizer, loss="mse")
    return model


strategy = tfrun.strategy()
with strategy.scope():
    keras.utils.set_random_seed(7)
    first, second = (
        build(16, keras.optimizers.Adam(0.01)),
        build(8, keras.optimizers.SGD(0.05, 0.9)),
    )
    optimizers = {"first": keras.optimizers.SGD(0.05, 0.9), "second": keras.optimizers.Adam(0.01)}
first.fit(X, X.sum(1), batch_size=16, epochs=2, verbose=2, callbacks=[Look(0)])
second.fit(X, X.prod(1), batch_size=16, epochs=2, verbose=2, callbacks=[Look(1)])


@tf.function
def together(x):
    def on_replica(x):
        with tf.GradientTape(persistent=True) as tape:
            a, b = first(x, training=True), second(x, training=True)
            loss = tf.reduce_sum((a - b) ** 2) / 16
        for model, optimizer in zip((first, second), optimizers.values(), strict=True):
            grads = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    strategy.run(on_replica, args=(x,))


data = tfrun.Dataset.from_arrays(X, batch_size=16, shuffle=True, seed=1)
with tfrun.TrainState(model={"first": first, "second": second}, optimizer=optimizers) as state:
    for batch in state.steps(data, epochs=2):
        together(batch)
        stepped(2, state.step + 1)
first.fit(X, X.sum(1), batch_size=16, epochs=1, verbose=2, callbacks=[Look(3)])
digest = hashlib.sha256()
for owner in (first, second, first.optimizer, second.optimizer, *optimizers.values()):
    for variable in owner.variables:
        digest.update(variable.numpy().tobytes())
print("WEIGHTS", digest.hexdigest())
