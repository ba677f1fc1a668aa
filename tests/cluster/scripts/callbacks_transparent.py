"""The same training with and without a chief-only callback that disturbs all it can."""

import keras
import numpy as np
from callbacks_common import FOLDER, dataset, finish, strategy, x, y

import tfrun


class Disturb(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.evaluate(x, y, verbose=0)
        self.model(x, training=True)

    def on_epoch_end(self, epoch, logs=None):
        self.model.predict(x, verbose=0)
        self.model.save(FOLDER / "model.keras")


def run(*callbacks):
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(8),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse", metrics=["mae"])
    history = model.fit(dataset(), epochs=2, callbacks=list(callbacks)).history
    return history, [float(np.sum(w.astype("float64"))) for w in model.get_weights()]


finish(**{"with": run(tfrun.ChiefOnly(Disturb())), "without": run()})
