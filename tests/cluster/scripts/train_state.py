"""Two custom loops whose workers kill themselves where KILLS says; each rank writes what came out.

KILLS: "round:rank:loop:step:where" with where "b" (before the update), "a" (after it) or "v" (in
the validation after the epoch that the step ends); several with spaces between. "2:0:b" is the
end of the script.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

HERE = tfrun.world()
KILLS = [kill.split(":") for kill in os.environ.get("KILLS", "").split()]
DATA, LOOP = os.environ.get("TEST_DATA", "dataset"), os.environ.get("TEST_LOOP", "steps")
rng = np.random.RandomState(0)
X, Y = rng.rand(170, 8, 8, 1).astype("float32"), rng.randint(0, 10, 170)
folder = Path(os.environ["TEST_FOLDER"])
seen = (folder / f"seen-{HERE.rank}.txt").open("a", buffering=1)


def kill_at(loop, step, where):
    here = [str(part) for part in (HERE.round, HERE.rank, loop, step, where)]
    if here in KILLS:
        os.kill(os.getpid(), signal.SIGKILL)


class Decay:
    """A schedule of the script's own: each step draws a number and moves it on."""

    def __init__(self):
        self.rate, self.history = 0.01, np.zeros(3)

    def next(self, optimizer):
        self.rate *= 0.99 + 0.01 * random.random()
        self.history = np.roll(self.history, 1)
        self.history[0] = self.rate
        optimizer.learning_rate.assign(self.rate)

    def get_state(self):
        return {"rate": self.rate, "history": self.history}

    def set_state(self, state):
        self.rate, self.history = state["rate"], state["history"]


def build():
    keras.utils.set_random_seed(7)
    inputs = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(4, 3)(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Flatten()(keras.layers.Dropout(0.2)(x))
    return keras.Model(inputs, keras.layers.Dense(10)(x))


strategy = tfrun.strategy()
with strategy.scope():
    model, critic = build(), keras.Sequential([keras.Input((10,)), keras.layers.Dense(1)])
    optimizer, second_optimizer = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.05, 0.9)
    accuracy = keras.metrics.SparseCategoricalAccuracy()
losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")


@tf.function
def train_step(batch):
    def on_replica(x, y):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = losses(y, logits) / 20
        accuracy.update_state(y, logits)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    return strategy.reduce("SUM", strategy.run(on_replica, args=batch), axis=None)


@tf.function
def adversarial_step(batch):
    """Two updates, as a GAN has: the critic's, then the model's."""

    def on_replica(x, y):
        with tf.GradientTape(persistent=True) as tape:
            logits = model(x, training=True)
            score = tf.reduce_sum(critic(logits) ** 2) / 20
            loss = losses(y, logits) / 20 + 0.1 * score
        grads = tape.gradient(score, critic.trainable_variables)
        second_optimizer.apply_gradients(zip(grads, critic.trainable_variables, strict=True))
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    return strategy.reduce("SUM", strategy.run(on_replica, args=batch), axis=None)


def data():
    if DATA == "dataset":
        return tfrun.Dataset.from_arrays((X, Y), batch_size=20, shuffle=True, seed=1)
    made = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(170).batch(20)
    return made if DATA == "tf.data" else strategy.experimental_distribute_dataset(made)


def one_step(loop, state, step, batch):
    kill_at(loop, state.step, "b")
    if (loop, state.step) == (0, 10) and "WAIT" in os.environ:
        (folder / "waits").touch()
        deadline = time.monotonic() + 30
        while not (folder / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    value = float(step(batch))
    kill_at(loop, state.step, "a")
    seen.write(f"{loop} {state.step} {value!r}\n")


def batch_at(step):
    def of_replica(context):
        rows = np.random.RandomState(step).permutation(170)[:20]
        mine = np.array_split(rows, strategy.num_replicas_in_sync)
        mine = mine[context.replica_id_in_sync_group]
        return X[mine], Y[mine]

    made = strategy.experimental_distribute_values_from_function
    return made(lambda c: tf.constant(of_replica(c)[0])), made(
        lambda c: tf.constant(of_replica(c)[1])
    )


dataset, decay = data(), Decay()
state = tfrun.TrainState(model=model, optimizer=optimizer, metrics=[accuracy])
sizes = []
if LOOP == "commit":
    while state.step < 27:
        one_step(0, state, train_step, batch_at(state.step))
        state.commit()
else:
    for epoch in range(state.epoch, 3):
        for batch in state.steps(dataset, epochs=epoch + 1):
            one_step(0, state, train_step, batch)
        kill_at(0, state.step - 1, "v")
        # Needs all workers: who is alone here is cut off.
        sizes.append(float(strategy.reduce("SUM", tf.constant(1.0), axis=None)))
first = float(accuracy.result())
middle = [state.step, state.epoch, state.step_in_epoch]
with tfrun.TrainState(
    model={"model": model, "critic": critic},
    optimizer=[optimizer, second_optimizer],
    decay=decay,
) as state:
    for batch in state.steps(dataset, epochs=2):
        decay.next(optimizer)
        one_step(1, state, adversarial_step, batch)
kill_at(2, 0, "b")
digest = hashlib.sha256()
for variable in [*model.variables, *critic.variables]:
    digest.update(variable.numpy().tobytes())
for variable in [*optimizer.variables, *second_optimizer.variables]:
    digest.update(variable.numpy().tobytes())
found = {
    "weights": digest.hexdigest(),
    "iterations": int(optimizer.iterations.numpy()),
    "accuracy": first,
    "middle": middle,
    "end": [state.step, state.epoch, state.step_in_epoch],
    "decay": [decay.rate, decay.history.tolist()],
    "random": random.random(),
}
(folder / f"{HERE.rank}.json").write_text(json.dumps(found))
print("rounds", HERE.round, flush=True)
