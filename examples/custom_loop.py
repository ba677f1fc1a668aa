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
        mean_loss = keras.metrics.Mean()
        loss_of_each = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        )

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            losses = loss_of_each(y, logits)
            # The sum over all replicas is the mean over the global batch.
            loss = tf.reduce_sum(losses) / GLOBAL_BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        # Before the update: a step is done when that is.
        mean_loss.update_state(losses)
        accuracy.update_state(y, logits)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def train_step(x, y):
        strategy.run(replica_step, args=(x, y))

    # When a worker dies, the script runs again, and goes on at the step that it had come to.
    metrics = [mean_loss, accuracy]
    state = tfrun.TrainState(model=model, optimizer=optimizer, metrics=metrics)
    for epoch in range(state.epoch, args.epochs):
        if state.step_in_epoch == 0:
            for metric in metrics:
                metric.reset_state()
        for x, y in state.steps(dataset, epochs=epoch + 1):
            train_step(x, y)
        # Every worker must ask: it sums over all of them.
        loss, value = (float(metric.result()) for metric in metrics)
        if tfrun.world().is_chief:
            print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {value:.4f}", flush=True)


if __name__ == "__main__":
    main()
