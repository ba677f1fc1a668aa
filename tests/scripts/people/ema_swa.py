# after: a blog post on averaging weights: an EMA in a callback, SWA by set_weights, evaluated aside
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_breast_cancer

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(27)
X, y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(0)) / X.std(0)
X_train, y_train, X_val, y_val = X[:400], y[:400], X[400:500], y[400:500]


class EMA(keras.callbacks.Callback):
    def __init__(self, decay=0.9):
        super().__init__()
        self.decay = decay

    def on_train_begin(self, logs=None):
        self.shadow = [w.copy() for w in self.model.get_weights()]

    def on_train_batch_end(self, batch, logs=None):
        for s, w in zip(self.shadow, self.model.get_weights()):
            s *= self.decay
            s += (1 - self.decay) * w

    def on_epoch_end(self, epoch, logs=None):
        backup = self.model.get_weights()
        self.model.set_weights(self.shadow)
        loss, accuracy = self.model.evaluate(X_val, y_val, verbose=0)
        print(f"epoch {epoch}: ema val_loss = {loss}, ema accuracy = {accuracy}")
        self.model.set_weights(backup)


class SWA(keras.callbacks.Callback):
    def __init__(self, start):
        super().__init__()
        self.start, self.count, self.mean = start, 0, None

    def on_epoch_end(self, epoch, logs=None):
        if epoch >= self.start:
            self.count += 1
            now = self.model.get_weights()
            if self.mean is None:
                self.mean = now
            else:
                self.mean = [m + (w - m) / self.count for m, w in zip(self.mean, now)]

    def on_train_end(self, logs=None):
        self.model.set_weights(self.mean)


with strategy.scope():
    model = keras.Sequential(
        [keras.Input((30,)), keras.layers.Dense(16, activation="gelu"), keras.layers.LayerNormalization(),
         keras.layers.Dense(1, activation="sigmoid")])
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
swa = SWA(start=1)
history = model.fit(X_train, y_train, batch_size=50, epochs=4, callbacks=[EMA(), swa], verbose=0)
print("averaged =", swa.count)
print("loss =", history.history["loss"][-1])
print("swa val_loss =", model.evaluate(X_val, y_val, verbose=0)[0])
print("weights =", float(sum(np.abs(w).sum() for w in model.get_weights())))
