"""A loop of the script's own, with a pause in each step; workers die where KILLS says.

"round:task:step:where" each, where: "before" its step's first call, "between" its two calls,
"after" them, or after so many steps where `validate` says. A worker is known by its process: to
ask for its place is to start again.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfrun

KIND, *MORE = sys.argv[1:]
BATCH = 16

strategy = tfrun.strategy()
keras.utils.set_random_seed(3)
with strategy.scope():
    dense, norm = keras.layers.Dense, keras.layers.BatchNormalization
    maker = keras.Sequential([keras.Input((2,)), dense(8, "relu"), norm(), dense(4)])
    # Without a layer that draws, a step of the critic's alone assigns nothing besides its update.
    noisy = [] if "bare" in MORE else [keras.layers.Dropout(0.2)]
    critic = keras.Sequential([keras.Input((4,)), dense(8, "relu"), *noisy, dense(1)])
    optimizers = [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01, momentum=0.9)]
    seen, other = keras.metrics.Mean("seen"), keras.metrics.Mean("other")
    val = keras.metrics.Mean("val")
    critic.compile(loss="mse", metrics=["mae"])

x = np.random.default_rng(0).normal(size=(90, 4)).astype("float32")
if KIND == "exact":
    dataset = tfrun.Dataset.from_arrays(x, batch_size=BATCH, shuffle=True)
else:
    dataset = tf.data.Dataset.from_tensor_slices(x).shuffle(90, seed=1).batch(BATCH)
if "distributed" in MORE:
    dataset = strategy.experimental_distribute_dataset(dataset)
valid = tf.data.Dataset.from_tensor_slices(x[:40]).batch(BATCH)
if "shuffled" in MORE:
    valid = valid.shuffle(3)
valid = strategy.experimental_distribute_dataset(valid)


class Schedule:
    """An object of the script's own, which moves on in the body of each step."""

    steps = 0

    def get_state(self):
        return {"steps": self.steps}

    def set_state(self, state):
        self.steps = state["steps"]


def noise(x):
    return tf.random.stateless_normal((tf.shape(x)[0], 2), seed=(1, 2))


def update(optimizer, loss, tape, model):
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


@tf.function
def critic_step(x, weight):
    def on_replica(x):
        with tf.GradientTape() as tape:
            made = noise(x) if "bare" in MORE else maker(noise(x), training=True)
            made = tf.concat([made, made], 1) if "bare" in MORE else made
            loss = tf.reduce_sum(critic(x, training=True) - critic(made, training=True))
            loss = loss / BATCH * weight
        update(optimizers[1], loss, tape, critic)
        if "stranger" in MORE:
            other.update_state(loss)
        return loss

    return strategy.reduce("SUM", strategy.run(on_replica, args=(x,)), axis=None)


@tf.function
def maker_step(x):
    def on_replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(critic(maker(noise(x), training=True), training=True)) / BATCH
        seen.update_state(loss)
        update(optimizers[0], loss, tape, maker)
        return loss

    return strategy.run(on_replica, args=(x,))


@tf.function
def test_step(x):
    def on_replica(x):
        val.update_state(critic(x))
        return tf.reduce_sum(critic(x))

    return strategy.reduce("SUM", strategy.run(on_replica, args=(x,)), axis=None)


@tf.function
def test_alone(x):
    def on_replica(x):
        val.update_state(critic(x))
        return tf.reduce_sum(critic(x))

    return strategy.run(on_replica, args=(x,))


@tf.function
def test_all(batches):
    for _ in range(3):
        strategy.run(lambda x: val.update_state(critic(x)), args=(next(batches),))


def validate():
    """Adds to `told` what all replicas find in all of the validation data."""
    if "late" not in MORE:
        val.reset_state()
    if "function" in MORE:
        test_all(iter(valid))
    else:
        for number, batch in enumerate(valid):
            if "quiet" in MORE:
                test_alone(batch)
            elif "eager" in MORE:
                told.append(float(strategy.reduce("SUM", test_alone(batch), axis=None)).hex())
            else:
                told.append(float(test_step(batch)).hex())
            dies(f"validating {number}")
    dies("validated")
    told.append(float(val.result()).hex())
    dies("resulted")
    if "late" in MORE:
        val.reset_state()
    if "evaluates" in MORE:
        dies("evaluating")
        told.append([float(n).hex() for n in critic.evaluate(x[:40], x[:40, :1], 16, verbose=0)])
        dies("evaluated")
        told.append(critic.predict(x[:40], 16, verbose=0).tobytes().hex())


def own_place():
    """The round in which this process was started, and as whom; None for a successor."""
    lines = Path(os.environ["TFRUN_RUN_DIR"], "events.jsonl").read_text().splitlines(keepends=True)
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    own = [e for e in events if e["event"] == "worker_started" and e["pid"] == os.getpid()]
    return [str(own[0]["round"]), own[0]["task"].partition(":")[2]] if own else None


PLACE = own_place()


def dies(where):
    if [*(PLACE or []), str(state.step), where] in [
        k.split(":") for k in os.environ["KILLS"].split(",")
    ]:
        os.kill(os.getpid(), signal.SIGKILL)


schedule = Schedule()
models = [maker, critic]
if "one" in MORE or "bare" in MORE:
    state = tfrun.TrainState(model=critic, optimizer=optimizers[1])
else:
    state = tfrun.TrainState(model=models, optimizer=optimizers, metrics=[seen], schedule=schedule)
told = []
for epoch in range(state.epoch, 3):
    for batch in state.steps(dataset, epochs=epoch + 1):
        schedule.steps += 1
        optimizers[0].learning_rate.assign(0.01 / schedule.steps)
        drawn = np.random.rand()
        dies("before")
        weight = tf.reduce_sum(batch) if "computes" in MORE else 0.5
        first = critic_step(batch, weight)
        dies("between")
        second = 0.0
        if "one" not in MORE and "bare" not in MORE:
            second = strategy.reduce("MEAN", maker_step(batch), axis=None)
        dies("after")
        time.sleep(float(os.environ.get("PAUSE", "0.15")))
        told.append((float(first).hex(), float(second).hex(), drawn))
    told.append(float(seen.result()).hex())
    seen.reset_state()
    if "validates" in MORE:
        validate()
weights = b"".join(np.ascontiguousarray(w).tobytes() for m in models for w in m.get_weights())
digest = hashlib.sha256(weights).hexdigest()
print("BITS", state.step, schedule.steps, digest, flush=True)
# What a successor has not seen it does not tell: who has seen all tells all.
print("TOLD", len(told), hashlib.sha256(str(told).encode()).hexdigest(), flush=True)
