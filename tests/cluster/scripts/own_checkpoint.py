"""A loop with a `tf.train.Checkpoint` of its own, which it saves each tenth step.

KILLS: at which step worker 1 is killed, in each round; the last one is repeated in all that follow.
"""

import os
import signal

import keras
import numpy as np
import tensorflow as tf

import tfrun

HERE = tfrun.world()
kills = [int(step) for step in os.environ["KILLS"].split()]
kill = kills[min(HERE.round, len(kills) - 1)]
x = np.random.RandomState(0).rand(64, 4).astype("float32")
strategy = tfrun.strategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
manager = tf.train.CheckpointManager(checkpoint, "own", max_to_keep=2)
checkpoint.restore(manager.latest_checkpoint)


@tf.function
def step(batch):
    def one(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows) - 1.0))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    strategy.run(one, args=(batch,))


while (number := int(optimizer.iterations.numpy())) < 100:
    if number == kill and HERE.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    step(tf.constant(x))
    if (number + 1) % 10 == 0:
        manager.save()
print("STEPS", int(optimizer.iterations.numpy()), "round", HERE.round)
