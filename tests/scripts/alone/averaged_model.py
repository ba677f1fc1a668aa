# after: a callback that keeps an averaged model and a metric, and trains on with what they hold
# expects: equal
import keras
import numpy as np

keras.utils.set_random_seed(11)
rng = np.random.default_rng(11)
x = rng.normal(size=(40, 4))
y = (x.sum(1, keepdims=True) > 0).astype("float64")


class Averages(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = {"train": keras.metrics.Mean(), "validation": keras.metrics.Mean()}

    def on_train_begin(self, logs=None):
        self.average = keras.models.clone_model(self.model)
        self.average.set_weights(self.model.get_weights())
        self.average.compile(loss="binary_crossentropy")

    def on_train_batch_end(self, batch, logs=None):
        self.losses["train"].update_state(logs["loss"])
        for mine, its in zip(self.average.weights, self.model.weights):
            mine.assign(0.9 * mine + 0.1 * its)

    def on_epoch_end(self, epoch, logs=None):
        self.losses["validation"].update_state(logs["val_loss"])
        rate = 0.1 * self.losses["train"].result() + 0.01 * self.losses["validation"].result()
        self.model.optimizer.learning_rate.assign(rate)
        print(f"epoch {epoch} rate = {float(rate):.9g}")


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, "relu"), keras.layers.Dense(1)])
loss = keras.losses.BinaryCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.05), loss)
averages = Averages()
for call in range(3):
    model.fit(
        *(x, y, 8, 2, 0, [averages]),
        shuffle=False,
        validation_data=(x[:16], y[:16]),
    )
    found = [np.abs(values).sum() for values in averages.average.get_weights()]
    print(f"fit {call} average = {sum(found):.9g}")
    print(f"fit {call} train = {float(averages.losses['train'].result()):.9g}")
    print(f"fit {call} model = {sum(np.abs(v).sum() for v in model.get_weights()):.9g}")
