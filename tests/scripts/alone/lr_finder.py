# after: notebooks with a learning-rate finder: a callback per batch, weights put back, then a schedule
# expects: equal
import keras
import numpy as np

keras.utils.set_random_seed(31)
rng = np.random.default_rng(31)
x = rng.normal(size=(160, 8))
y = (x @ rng.normal(size=(8, 1)) > 0).astype("float32")


class LRFinder(keras.callbacks.Callback):
    def __init__(self, start_lr=1e-4, end_lr=1.0, num_steps=10, beta=0.8):
        super().__init__()
        self.factor = (end_lr / start_lr) ** (1 / num_steps)
        self.start_lr, self.num_steps, self.beta = start_lr, num_steps, beta
        self.losses, self.lrs = [], []
        self.avg_loss, self.best_loss = 0.0, 1e9

    def on_train_begin(self, logs=None):
        self.weights = self.model.get_weights()
        self.model.optimizer.learning_rate = self.start_lr

    def on_train_batch_end(self, batch, logs=None):
        lr = float(self.model.optimizer.learning_rate.numpy())
        self.avg_loss = self.beta * self.avg_loss + (1 - self.beta) * logs["loss"]
        smooth = self.avg_loss / (1 - self.beta ** (len(self.losses) + 1))
        self.lrs.append(lr)
        self.losses.append(smooth)
        self.best_loss = min(self.best_loss, smooth)
        if smooth > 4 * self.best_loss or len(self.losses) >= self.num_steps:
            self.model.stop_training = True
            return
        self.model.optimizer.learning_rate.assign(lr * self.factor)

    def on_train_end(self, logs=None):
        self.model.set_weights(self.weights)

    def best(self):
        slopes = np.gradient(self.losses, np.log(self.lrs))
        return self.lrs[int(np.argmin(slopes))]


def build():
    model = keras.Sequential([
        keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
    return model


model = build()
finder = LRFinder()
model.fit(x, y, batch_size=20, epochs=5, callbacks=[finder], shuffle=False, verbose=0)
print("steps =", len(finder.lrs), " best loss =", finder.best_loss)
best = finder.best()
print("best learning rate =", best)
model.compile(keras.optimizers.SGD(best), "binary_crossentropy", metrics=["accuracy"])
history = model.fit(
    x, y, epochs=4, batch_size=20, shuffle=False, verbose=0,
    sample_weight=np.linspace(0.5, 1.5, 160), validation_data=(x[:40], y[:40], np.ones(40)),
    callbacks=[
        keras.callbacks.LearningRateScheduler(lambda e, lr: lr * 0.9 if e > 1 else lr),
        keras.callbacks.TerminateOnNaN(), keras.callbacks.CSVLogger("log.csv")])
print("learning rate =", history.history["learning_rate"][-1])
print("loss =", history.history["loss"][-1], " val_loss =", history.history["val_loss"][-1])
print("rows =", len(open("log.csv").read().splitlines()))
