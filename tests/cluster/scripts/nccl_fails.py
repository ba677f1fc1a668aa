"""NCCL fails as it does between workers of one GPU: TensorFlow then refuses all collectives."""

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from tfrun.engine import tensorflow_collectives
from tfrun.job.world import world


def fails(_):
    if world().rank == 1:  # the others have to learn of it
        context.context().abort_collective_ops(tf.errors.INTERNAL, "NCCL: invalid usage")
        return False
    return True


tensorflow_collectives.nccl_works = fails
early = tf.Variable([1.0, 2.0])
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.ones((64, 4), "f"), np.ones((64, 1), "f"), batch_size=16, verbose=0)
print("WEIGHTS", model.get_weights()[0].tobytes().hex(), (early + 1.0).numpy().tolist())
