# after: schedules of noise in callbacks and in steps that run eagerly, with data that Python loads
# expects: equal
# shows: Using MultiWorkerMirrored eagerly has significant overhead
import time

import keras
import numpy as np

keras.utils.set_random_seed(53)
rng = np.random.default_rng(53)
x = rng.normal(size=(40, 5)).astype("float32")
y = (x[:, :1] - x[:, 1:2]).astype("float32")


class Loads(keras.utils.PyDataset):
    """Takes its time for each batch, as files do, and draws nothing."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        time.sleep(0.02)
        rows = slice(8 * index, 8 * index + 8)
        return x[rows], y[rows]


class Jitter(keras.callbacks.Callback):
    """Draws with each batch, from numpy's global generator."""

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate.assign(0.05 * (1 + np.random.uniform(-0.3, 0.3)))


class Shaken(keras.Model):
    def train_step(self, data):
        inputs, targets = data
        return super().train_step((inputs * np.float32(np.random.normal(1, 0.1)), targets))


def model_of(cls, eagerly):
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(6, "tanh")(inputs)
    model = cls(inputs, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=eagerly)
    return model


for name, cls, eagerly in (("callback", keras.Model, False), ("step", Shaken, True)):
    model = model_of(cls, eagerly)
    model.fit(Loads(), epochs=3, verbose=0, shuffle=False, callbacks=[Jitter()])
    print(f"{name} model = {sum(np.abs(v).sum() for v in model.get_weights()):.9g}")
    print(f"{name} next = {np.random.random():.9g}")
