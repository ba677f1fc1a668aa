# after: Ray Train's tensorflow_mnist_example.py, ported: train_func(config) and a report callback
# expects: equal
# not compared: workers
import json
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits


def mnist_dataset(batch_size: int) -> tf.data.Dataset:
    x_train, y_train = load_digits(return_X_y=True)
    x_train = x_train[:480] / np.float32(16)
    y_train = y_train[:480].astype(np.int64)
    train_dataset = (
        tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(480, seed=0).repeat().batch(batch_size)
    )
    return train_dataset


def build_cnn_model() -> tf.keras.Model:
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(64,)),
            tf.keras.layers.Reshape(target_shape=(8, 8, 1)),
            tf.keras.layers.Conv2D(8, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    return model


class ReportCheckpointCallback(tf.keras.callbacks.Callback):
    """ray.train.tensorflow.keras.ReportCheckpointCallback, for people who have left Ray."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        if int(os.environ.get("RANK", 0)) == 0:
            with open(self.path, "a") as f:
                f.write(json.dumps({k: float(v) for k, v in logs.items()}) + "\n")


def train_func(config: dict):
    global_batch_size = config.get("batch_size", 48)
    epochs = config.get("epochs", 2)
    steps_per_epoch = config.get("steps_per_epoch", 10)
    tf_config = json.loads(os.environ.get("TF_CONFIG", '{"cluster": {"worker": [0]}}'))
    print("workers =", len(tf_config["cluster"]["worker"]))
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(0)
    multi_worker_dataset = mnist_dataset(global_batch_size)
    with strategy.scope():
        multi_worker_model = build_cnn_model()
        learning_rate = config.get("lr", 0.001)
        multi_worker_model.compile(
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=tf.keras.optimizers.SGD(learning_rate=learning_rate),
            metrics=["accuracy"],
        )
    history = multi_worker_model.fit(
        multi_worker_dataset,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        callbacks=[ReportCheckpointCallback("reported.jsonl")],
        verbose=0,
    )
    return history.history


results = train_func({"lr": 1e-1, "batch_size": 48, "epochs": 3})
for loss, accuracy in zip(results["loss"], results["accuracy"]):
    print("loss =", loss, "accuracy =", accuracy)
reported = [json.loads(line) for line in open("reported.jsonl")] if os.environ.get("RANK", "0") == "0" else []
for line in reported:
    print("reported loss =", line["loss"])
