# after: Keras's guide "Writing your own callbacks"
# expects: near 0.02: logs of one batch are the mean of what the workers have, whose parts are unequal
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(17)


def get_model():
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1)])
        model.compile(
            optimizer=keras.optimizers.RMSprop(learning_rate=0.1),
            loss="mean_squared_error",
            metrics=["mean_absolute_error"],
        )
    return model


X, Y = load_digits(return_X_y=True)
x_train, y_train = X[:400] / 16.0, Y[:400]
x_test, y_test = X[400:500] / 16.0, Y[400:500]


class LossAndErrorPrintingCallback(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch % 2 == 0:
            print("Up to batch {}, the average loss is = {:.7f}".format(batch, logs["loss"]))

    def on_test_batch_end(self, batch, logs=None):
        print("In evaluation, the average loss is = {:.7f}".format(logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        print("The average loss for the epoch is = {} and mean absolute error is = {}".format(
            logs["loss"], logs["mean_absolute_error"]))


model = get_model()
model.fit(x_train, y_train, batch_size=128, epochs=2, verbose=0, callbacks=[LossAndErrorPrintingCallback()])
model.evaluate(x_test, y_test, batch_size=64, verbose=0, callbacks=[LossAndErrorPrintingCallback()])


class EarlyStoppingAtMinLoss(keras.callbacks.Callback):
    def __init__(self, patience=0):
        super().__init__()
        self.patience = patience
        self.best_weights = None

    def on_train_begin(self, logs=None):
        self.wait = 0
        self.stopped_epoch = 0
        self.best = np.inf

    def on_epoch_end(self, epoch, logs=None):
        current = logs.get("loss")
        if np.less(current, self.best):
            self.best = current
            self.wait = 0
            self.best_weights = self.model.get_weights()
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stopped_epoch = epoch
                self.model.stop_training = True
                self.model.set_weights(self.best_weights)

    def on_train_end(self, logs=None):
        if self.stopped_epoch > 0:
            print(f"Epoch {self.stopped_epoch + 1}: early stopping")


class CustomLearningRateScheduler(keras.callbacks.Callback):
    def __init__(self, schedule):
        super().__init__()
        self.schedule = schedule

    def on_epoch_begin(self, epoch, logs=None):
        lr = self.model.optimizer.learning_rate
        scheduled_lr = self.schedule(epoch, lr)
        self.model.optimizer.learning_rate = scheduled_lr
        print(f"Epoch {epoch}: Learning rate is = {float(np.array(scheduled_lr))}")


LR_SCHEDULE = {1: 0.05, 2: 0.01, 4: 0.002}
model = get_model()
history = model.fit(
    x_train, y_train, batch_size=64, epochs=6, verbose=0,
    callbacks=[EarlyStoppingAtMinLoss(),
               CustomLearningRateScheduler(lambda epoch, lr: LR_SCHEDULE.get(epoch, lr))],
)
print("epochs =", len(history.history["loss"]))
print("evaluate =", model.evaluate(x_test, y_test, verbose=0)[0])
