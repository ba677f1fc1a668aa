# after: TensorFlow's guide "Migrate the fault tolerance mechanism": BackupAndRestore, an interruption
# expects: equal
import os

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
x, y = load_digits(return_X_y=True)
x_train, y_train, x_test, y_test = x[:320] / 16.0, y[:320], x[320:480] / 16.0, y[320:480]


class InterruptAtEpoch(keras.callbacks.Callback):
    # A callback for artificially interrupting training.
    def __init__(self, interrupting_epoch=2):
        super().__init__()
        self.interrupting_epoch = interrupting_epoch

    def on_epoch_end(self, epoch, log=None):
        if epoch == self.interrupting_epoch:
            raise RuntimeError("Interruption")


def create_model():
    with strategy.scope():
        model = keras.models.Sequential(
            [
                keras.layers.Input((64,)),
                keras.layers.Dense(32, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer="adam",
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=1,
            metrics=["accuracy"],
        )
    return model


callback = keras.callbacks.BackupAndRestore(backup_dir=os.path.join("backup", "model"))
model = create_model()
try:
    model.fit(x=x_train, y=y_train, batch_size=40, epochs=4, validation_data=(x_test, y_test),
              callbacks=[callback, InterruptAtEpoch()], verbose=0)
except RuntimeError as error:
    print("interrupted:", error)
print("iterations =", int(model.optimizer.iterations))

model = create_model()
history = model.fit(x=x_train, y=y_train, batch_size=40, epochs=4, validation_data=(x_test, y_test),
                    callbacks=[callback], verbose=0)
print("epochs =", len(history.epoch), "first =", history.epoch[0])
print("loss =", history.history["loss"][-1])
print("val_loss =", history.history["val_loss"][-1])
print("iterations =", int(model.optimizer.iterations))
print("weights =", float(sum(np.abs(w).sum() for w in model.get_weights())))
