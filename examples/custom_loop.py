"""A training loop written by hand, with a Keras 3 model, on one worker or many.

tfrun -n 2 examples/custom_loop.py --epochs 3
"""

from __future__ import annotations

import argparse

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

import tfrun

GLOBAL_BATCH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    strategy = tfrun.strategy()
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype("float32") / 16.0
    dataset = (
        tf.data.Dataset.from_tensor_slices((images, labels.astype("int64")))
        .shuffle(len(images), seed=1)
        .batch(GLOBAL_BATCH, drop_remainder=True)
    )
    distributed = strategy.experimental_distribute_dataset(dataset)

    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
        optimizer = keras.optimizers.SGD(learning_rate=0.1)
        optimizer.build(model.trainable_variables)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        loss_of_each = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        )

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            # The sum over all replicas is the mean over the global batch.
            loss = tf.reduce_sum(loss_of_each(y, logits)) / GLOBAL_BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        accuracy.update_state(y, logits)
        return loss

    @tf.function
    def train_step(x, y):
        return strategy.reduce("SUM", strategy.run(replica_step, args=(x, y)), axis=None)

    for epoch in range(args.epochs):
        accuracy.reset_state()
        losses = [float(train_step(x, y)) for x, y in distributed]
        value = float(accuracy.result())  # every worker must ask: it sums over all of them
        if tfrun.world().is_chief:
            mean = sum(losses) / len(losses)
            print(f"epoch {epoch + 1}: loss {mean:.4f}, accuracy {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
