"""TensorFlow's tutorial "Multi-worker training with Keras": a script that knows nothing of tfrun.

    tfrun -n 2 examples/multi_worker_with_keras.py

With Keras 3 and a TF_CONFIG written by hand this script fails on its first step
(https://github.com/keras-team/keras/issues/20585); under tfrun it runs as it stands.
"""

from __future__ import annotations

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

PER_WORKER_BATCH = 64
STEPS_PER_EPOCH = 20


def digits_dataset(batch_size: int) -> tf.data.Dataset:
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype("float32") / 16.0
    dataset = tf.data.Dataset.from_tensor_slices((images, labels.astype("int64")))
    return dataset.shuffle(len(images), seed=1).repeat().batch(batch_size)


def build_and_compile_cnn_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.05),
        metrics=["accuracy"],
    )
    return model


strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = build_and_compile_cnn_model()
model.fit(
    digits_dataset(PER_WORKER_BATCH * strategy.num_replicas_in_sync),
    epochs=3,
    steps_per_epoch=STEPS_PER_EPOCH,
)
