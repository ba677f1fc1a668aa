"""TensorFlow's tutorial "Custom training loop with Keras and MultiWorkerMirroredStrategy".

    tfrun -n 2 examples/multi_worker_with_ctl.py

A script that knows nothing of tfrun. It makes the strategy, has its own loop, and saves its own
checkpoints, for which all workers call `save`. After a death it continues from the newest one.
"""

from __future__ import annotations

import os
from pathlib import Path

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

PER_WORKER_BATCH = 64
EPOCHS = 3
STEPS_PER_EPOCH = 20
# tfrun sets this variable: each job has checkpoints of its own.
CHECKPOINTS = Path(os.environ.get("TFRUN_RUN_DIR", "."), "tutorial-checkpoints")


def digits_dataset(batch_size: int) -> tf.data.Dataset:
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype("float32") / 16.0
    dataset = tf.data.Dataset.from_tensor_slices((images, labels.astype("int64")))
    return dataset.shuffle(len(images), seed=1).repeat().batch(batch_size, drop_remainder=True)


def build_cnn_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = build_cnn_model()
    optimizer = keras.optimizers.RMSprop(learning_rate=0.001)
    train_accuracy = keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
dataset = strategy.experimental_distribute_dataset(
    digits_dataset(PER_WORKER_BATCH * strategy.num_replicas_in_sync)
)


@tf.function
def train_step(iterator):
    """Makes one step on all workers; returns the loss of the whole batch."""

    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            per_example_loss = keras.losses.sparse_categorical_crossentropy(
                y, predictions, from_logits=True
            )
            loss = tf.nn.compute_average_loss(per_example_loss)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        train_accuracy.update_state(y, predictions)
        return loss

    per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


epoch = tf.Variable(0, dtype=tf.int64, name="epoch")
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, directory=str(CHECKPOINTS), max_to_keep=1)
if manager.latest_checkpoint:
    checkpoint.restore(manager.latest_checkpoint)

iterator = iter(dataset)
while epoch.numpy() < EPOCHS:
    total_loss = 0.0
    for _ in range(STEPS_PER_EPOCH):
        total_loss += float(train_step(iterator))
    print(
        f"Epoch: {int(epoch)}, accuracy: {float(train_accuracy.result()):.4f}, "
        f"train_loss: {total_loss / STEPS_PER_EPOCH:.4f}"
    )
    train_accuracy.reset_state()
    epoch.assign_add(1)
    manager.save()
