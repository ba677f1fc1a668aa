"""A chief-only callback that does with the model whatever a user might do."""

import keras
import numpy as np
import tensorflow as tf
from callbacks_common import (
    FOLDER,
    RANK,
    barrier,
    dataset,
    finish,
    listing,
    strategy,
    x,
    y,
)

import tfrun

calls, seen, refusals = [], {}, {}


class Report(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        calls.append("train_begin")

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            # Within the epoch: the training metrics must survive an evaluation.
            seen["mid"] = self.model.evaluate(x, y, verbose=0, return_dict=True)["loss"]

    def on_epoch_end(self, epoch, logs=None):
        model = self.model
        calls.append(f"epoch_end {epoch}")
        seen["loss"] = model.evaluate(dataset(), verbose=0, return_dict=True)["loss"]
        predicted = model.predict(x, batch_size=7, verbose=0)
        seen["predicted"] = predicted.shape[0]
        seen["by_hand"] = float(np.mean((predicted - y) ** 2))
        seen["on_batch"] = model.test_on_batch(x, y, return_dict=True)["loss"]
        seen["called"] = float(tf.reduce_mean((model(x) - y) ** 2))
        seen["mc_dropout"] = model(x, training=True).shape[0]
        seen["metric"] = float(model.get_metrics_result()["loss"])
        seen["weights"] = len(model.get_weights())
        if len(calls) > 2:
            return  # the rest is slow, and no other the second time
        model.save(FOLDER / "chief" / f"{epoch}.keras")
        model.save_weights(FOLDER / "chief" / f"{epoch}.weights.h5")
        model.export(FOLDER / "chief" / f"exported-{epoch}", verbose=False)
        copy = keras.models.load_model(FOLDER / "chief" / f"{epoch}.keras")
        seen["copy"] = copy.evaluate(x, y, verbose=0)[0]
        copy.fit(x, y, verbose=0)  # its own model, of no strategy: its own business
        best = model.get_weights()
        model.set_weights([np.zeros_like(weight) for weight in best])
        seen["zeros"] = float(tf.reduce_sum(model(x)))
        model.set_weights(best)
        for name, ask in {
            "fit": lambda: model.fit(x, y),
            "train_on_batch": lambda: model.train_on_batch(x, y),
            "reduce": lambda: strategy.reduce("SUM", tf.constant(1.0), axis=None),
            "gather": lambda: strategy.gather(tf.constant([1.0]), axis=0),
            "run": lambda: strategy.run(lambda: tf.constant(1.0)),
            "scope": lambda: strategy.scope(),
        }.items():
            try:
                ask()
            except tfrun.TfrunError as error:
                refusals[name] = error.code


with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse", metrics=["mae"])
(FOLDER / "chief").mkdir(exist_ok=True)


class Wall(keras.callbacks.Callback):
    """An ordinary callback of all workers: its own use of the model is collective."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch:
            return
        seen["all_loss"] = self.model.evaluate(dataset(), verbose=0, return_dict=True)["loss"]
        seen["all_predicted"] = self.model.predict(x, verbose=0).shape[0]


callbacks = [tfrun.ChiefOnly(Report()), Wall()]
history = model.fit(dataset(), epochs=2, callbacks=callbacks).history
# The same once more, from within the strategy's scope.
with strategy.scope():
    again = model.fit(dataset(), epochs=1, callbacks=callbacks).history
plain = model.fit(dataset(), epochs=1).history


class Unequal(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.learning_rate = 0.5


unequal = tfrun.ChiefOnly(Unequal())
unequal.set_model(model)
try:
    unequal.on_epoch_end(0, {})
except tfrun.TfrunError as error:
    refusals["learning_rate"] = error.code
variables = [*model.variables, *model.optimizer.variables]
digest = [float(np.sum(np.abs(v.numpy().astype("float64")))) for v in variables]
barrier()
finish(
    rank=RANK,
    calls=calls,
    seen=seen,
    refusals=refusals,
    history=[history, again, plain],
    digest=digest,
    files=[name for name in listing("chief") if "exported" not in name],
)
