# after: pipelines whose length nobody knows, of batches of one size (`drop_remainder`) and of any
# expects: equal
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(9)
rng = np.random.default_rng(9)
x = rng.normal(size=(40, 5))
y = np.tanh(x[:, :1]) + rng.normal(size=(40, 1)) * 0.1


def samples():
    yield from zip(x, y, strict=True)


spec = (tf.TensorSpec((5,), tf.float64), tf.TensorSpec((1,), tf.float64))
made = tf.data.Dataset.from_generator(samples, output_signature=spec)
fixed = made.batch(6, drop_remainder=True)
filtered = made.filter(lambda x, y: y[0] > -0.8).batch(6)


class MeanOfBatches(keras.metrics.Metric):
    def __init__(self, name="mean_of_batches"):
        super().__init__(name=name)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.batches = self.add_weight(name="batches", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(keras.ops.mean(keras.ops.abs(y_true - y_pred)))
        self.batches.assign_add(1.0)

    def result(self):
        return self.total / self.batches


class Tracked(keras.Model):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.tracker = keras.metrics.Mean(name="loss")
        self.mae = keras.metrics.MeanAbsoluteError(name="mae")
        self.own = MeanOfBatches()

    @property
    def metrics(self):
        return [self.tracker, self.mae, self.own]

    def call(self, x):
        return self.net(x)

    def seen(self, y, p, loss):
        self.tracker.update_state(loss)
        self.mae.update_state(y, p)
        self.own.update_state(y, p)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self.net(x, training=True)
            loss = tf.reduce_mean(tf.square(p - y))
        weights = self.net.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return self.seen(y, p, loss)

    def test_step(self, data):
        x, y = data
        p = self.net(x)
        return self.seen(y, p, tf.reduce_mean(tf.square(p - y)))


def net():
    return keras.Sequential([keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])


def shown(name, model, data):
    history = model.fit(data, epochs=2, verbose=0, validation_data=fixed)
    for key, values in history.history.items():
        for epoch, value in enumerate(values):
            print(f"{name} {key} {epoch} = {value:.12f}")
    for key, value in model.evaluate(data, verbose=0, return_dict=True).items():
        print(f"{name} evaluated {key} = {value:.12f}")


for name, data in (("fixed", fixed), ("filtered", filtered)):
    model = net()
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], weighted_metrics=["mape"])
    shown(f"{name} compiled", model, data)
    model = Tracked(net())
    model.compile(keras.optimizers.AdamW(0.01, weight_decay=0.1))
    shown(f"{name} tracked", model, data)
