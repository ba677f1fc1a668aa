# after: scripts whose callbacks collect and decide by globals, closures and objects of their own
# expects: equal
from collections import defaultdict
from dataclasses import dataclass, field

import keras
import numpy as np

keras.utils.set_random_seed(23)
rng = np.random.default_rng(23)
x = rng.normal(size=(48, 5))
y = (x[:, :1] * x[:, 1:2] > 0).astype("float64")

config = {"patience": 3, "rate": 0.05}
losses = []
table = defaultdict(list)
best = None


@dataclass
class Meter:
    total: float = 0.0
    count: int = 0
    last: list = field(default_factory=list)

    def add(self, value):
        self.total += value
        self.count += 1
        self.last = [*self.last, value][-3:]

    @property
    def mean(self):
        return self.total / max(1, self.count)


meter = Meter()


def remember(name, value):
    table[name].append(value)


class Watches(keras.callbacks.Callback):
    steps = 0

    def __init__(self):
        super().__init__()
        self.mine = Meter()

    def on_train_batch_end(self, batch, logs=None):
        Watches.steps += 1
        meter.add(float(logs["loss"]))
        self.mine.add(batch)

    def on_epoch_end(self, epoch, logs=None):
        global best
        losses.append(logs["loss"])
        remember("rate", float(self.model.optimizer.learning_rate))
        if best is None or logs["loss"] < best - 1e-3:
            best = logs["loss"]
        elif len(losses) > config["patience"]:
            self.model.optimizer.learning_rate.assign(config["rate"] * meter.mean)
        print(f"epoch {epoch} mean = {meter.mean:.9g} last = {sum(self.mine.last):.9g}")


def early(model, most):
    waited = 0

    def stops(epoch, logs):
        nonlocal waited
        waited = waited + 1 if logs["loss"] > 0.9 * losses[0] else 0
        model.stop_training = waited >= most

    return keras.callbacks.LambdaCallback(on_epoch_end=stops)


model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
loss = keras.losses.BinaryCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(config["rate"]), loss)
watches = Watches()
for call in range(2):
    model.fit(x, y, 8, 5, 0, [watches, early(model, 4)], shuffle=False)
    print(f"fit {call} epochs = {len(losses)} steps = {Watches.steps} best = {best:.9g}")
    print(f"fit {call} rates = {sum(table['rate']):.9g} mean = {watches.mine.mean:.9g}")
    print(f"fit {call} model = {sum(np.abs(v).sum() for v in model.get_weights()):.9g}")
