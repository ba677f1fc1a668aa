# after: scripts whose callbacks make the data harder, by a global and an attribute of a PyDataset
# expects: equal
from types import SimpleNamespace

import keras
import numpy as np

keras.utils.set_random_seed(31)
rng = np.random.default_rng(31)
x = rng.normal(size=(40, 5))
y = (x[:, :1] + x[:, 1:2] > 0).astype("float64")
stage = SimpleNamespace(rate=0.01, epochs=0)


class Batches(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.noise = 0.0

    def __len__(self):
        return 5

    def __getitem__(self, index):
        rows = slice(8 * index, 8 * index + 8)
        return x[rows] + self.noise * np.cos(np.arange(40.0)).reshape(8, 5), y[rows]


class Slower(keras.callbacks.Callback):
    """Trains more slowly where the loss is small, and the more so the longer."""

    def on_epoch_end(self, epoch, logs=None):
        stage.epochs += 1
        self.model.slowed = getattr(self.model, "slowed", 0) + (logs["loss"] < 0.75)
        stage.rate *= 1 - 0.1 * stage.epochs if self.model.slowed else 1.1
        self.model.optimizer.learning_rate.assign(stage.rate)


class HarderBatches(keras.callbacks.Callback):
    def __init__(self, data):
        super().__init__()
        self.data = data

    def on_epoch_end(self, epoch, logs=None):
        self.data.noise = 1.5 * self.data.noise + 0.1 * logs["loss"]
        print(f"epoch {epoch} noise = {self.data.noise:.9g}")


model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
model.fit(x, y, 8, 5, 0, [Slower()], shuffle=False)
print(f"rate = {stage.rate:.9g} slowed = {model.slowed} epochs = {stage.epochs}")
data = Batches()
for call in range(2):
    model.fit(data, epochs=4, verbose=0, callbacks=[HarderBatches(data)], shuffle=False)
    print(f"fit {call} noise = {data.noise:.9g}")
    print(f"fit {call} model = {sum(np.abs(v).sum() for v in model.get_weights()):.9g}")
