"""What all workers see alike: rows of a batch that is too small, values of metrics, logs."""

from __future__ import annotations

import json
import os

import keras
import numpy as np
import tensorflow as tf

keras.config.set_floatx("float64")
strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.random.default_rng(0).normal(size=(33, 5, 3))
y = x.sum(axis=(1, 2))[:, None]


class Total(keras.metrics.Metric):
    """As Keras's guide has it: `result` returns the value of the variable itself."""

    def __init__(self):
        super().__init__(name="total")
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(keras.ops.sum(keras.ops.square(y_true)))

    def result(self):
        return self.total.value


class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []

    def on_test_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((5, 3)),
            keras.layers.LSTM(4),
            keras.layers.RepeatVector(2),
            keras.layers.Bidirectional(keras.layers.GRU(3)),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse", metrics=[Total()])
one_row = model.predict(x[:1], verbose=0)  # the others have none
history = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0).history
alone, inside = Seen(), Seen()
model.evaluate(x[:32], y[:32], batch_size=16, verbose=0, callbacks=[alone])
validation = {"validation_data": (x[:32], y[:32]), "validation_batch_size": 16}
model.fit(x, y, batch_size=16, shuffle=False, verbose=0, callbacks=[inside], **validation)
looped = []
dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(x).batch(32))
for batch in dataset:

    @tf.function
    def forward(part):
        return strategy.run(lambda rows: tf.reduce_sum(model(rows)), args=(part,))

    looped.append(float(strategy.reduce("SUM", forward(batch), axis=None)))
results = {
    "one row": one_row.tolist(),
    "33 rows": model.predict(x, verbose=0).tolist(),
    "total": history["total"],
    "evaluated total": model.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)["total"],
    "logs of evaluate": alone.losses,
    "logs of validation": inside.losses,
    "loop": looped,
}
with open(os.environ["TFRUN_TEST_OUT"], "w") as file:  # noqa: PTH123
    json.dump(results, file)
