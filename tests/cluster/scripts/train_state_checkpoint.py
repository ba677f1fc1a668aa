"""A custom loop that knows nothing of tfrun and restores its own tf.train.Checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

folder = Path(os.environ["TEST_FOLDER"])
keras.utils.set_random_seed(3)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    optimizer = keras.optimizers.Adam(0.05)
    done = tf.Variable(0, dtype=tf.int64, trainable=False)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
# Every worker has to save, because it reads all variables; each into its own place.
manager = tf.train.CheckpointManager(checkpoint, str(folder / f"checkpoint-{rank}"), max_to_keep=2)
with strategy.scope():
    optimizer.build(model.trainable_variables)
checkpoint.restore(manager.latest_checkpoint)


@tf.function
def train_step(x):
    def on_replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - 1.0) ** 2)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    strategy.run(on_replica, args=(x,))


began = int(done.numpy())
while int(done.numpy()) < 12:
    step = int(done.numpy())
    if os.environ.get("KILL") == f"{os.environ['TFRUN_ROUND']}:{rank}:{step}":
        os.kill(os.getpid(), signal.SIGKILL)
    train_step(tf.constant(np.random.RandomState(step).rand(8, 4).astype("float32")))
    done.assign_add(1)
    if step % 4 == 3:
        manager.save()
total = sum(float(np.sum(np.abs(weight))) for weight in model.get_weights())
(folder / f"{rank}.txt").write_text(f"{began} {int(done.numpy())} {total!r}")
