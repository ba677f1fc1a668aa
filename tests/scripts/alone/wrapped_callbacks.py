# after: wrappers of callbacks, as people write them: every other epoch, from an epoch on, several
# expects: equal
import keras
import numpy as np

keras.utils.set_random_seed(41)
rng = np.random.default_rng(41)
x = rng.normal(size=(40, 5))
y = (x[:, :1] * x[:, 2:3] > 0).astype("float64")


class FromEpoch(keras.callbacks.Callback):
    def __init__(self, first, callback):
        super().__init__()
        self.first, self.callback = first, callback

    def set_model(self, model):
        super().set_model(model)
        self.callback.set_model(model)

    def on_train_begin(self, logs=None):
        self.callback.on_train_begin(logs)

    def on_epoch_end(self, epoch, logs=None):
        if epoch >= self.first:
            self.callback.on_epoch_end(epoch, logs)


class Together(keras.callbacks.Callback):
    def __init__(self, *callbacks):
        super().__init__()
        self.callbacks = list(callbacks)

    def set_model(self, model):
        super().set_model(model)
        for callback in self.callbacks:
            callback.set_model(model)

    def on_epoch_end(self, epoch, logs=None):
        for callback in self.callbacks:
            callback.on_epoch_end(epoch, logs)


class Decays(keras.callbacks.Callback):
    factor = 1.0

    def on_epoch_end(self, epoch, logs=None):
        self.factor *= 0.9
        self.model.optimizer.learning_rate.assign(0.05 * self.factor)


model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
loss = keras.losses.BinaryCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.05), loss)
decays = Decays()
plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=0.01, cooldown=1)
stops = keras.callbacks.EarlyStopping("loss", min_delta=0.03, patience=6)
for call in range(2):
    callbacks = [Together(decays, plateau), FromEpoch(1, stops)]
    done = model.fit(x, y, 8, 8, 0, callbacks, shuffle=False)
    print(f"fit {call} epochs = {len(done.epoch)} factor = {decays.factor:.9g}")
    print(f"fit {call} rate = {float(model.optimizer.learning_rate):.9g}")
    print(f"fit {call} model = {sum(np.abs(v).sum() for v in model.get_weights()):.9g}")
