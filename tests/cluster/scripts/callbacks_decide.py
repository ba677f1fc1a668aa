"""Callbacks that decide from the logs, which are those of all workers."""

import keras
import numpy as np
import tensorflow as tf
from callbacks_common import RANK, dataset, finish, model_of, train, x, y

result = {}
train(
    result,
    "early",
    keras.callbacks.EarlyStopping("loss", mode="max", patience=2, restore_best_weights=True),
)
train(
    result,
    "plateau",
    keras.callbacks.ReduceLROnPlateau("loss", mode="max", patience=1, min_lr=1e-9),
)
train(result, "schedule", keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5))


# One worker's data turns the loss into NaN: all see it, at that step.
bad = x.copy()
bad[16 * 1 + 8 : 16 * 2] = np.nan  # the second half of the second global batch: worker 1's part
poisoned = tf.data.Dataset.from_tensor_slices((bad, y)).batch(16)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
nan_model = model_of(optimizer="sgd")
nan_model.fit(
    poisoned.with_options(options), epochs=3, callbacks=[keras.callbacks.TerminateOnNaN()]
)
nan_steps = int(nan_model.optimizer.iterations.numpy())


class OwnStep(keras.Sequential):
    """Logs something that is no metric, different on each worker."""

    def train_step(self, data):
        super().train_step(data)
        return {"loss": tf.constant(float(RANK)), "mine": tf.constant(10.0 * RANK)}


own = model_of(OwnStep, "sgd")
history = own.fit(
    dataset(), epochs=4, callbacks=[keras.callbacks.EarlyStopping("mine", patience=1, mode="min")]
)
finish(runs=result, nan_steps=nan_steps, own=history.history)
