# after: Keras's callbacks in a row: schedules, plateaus, CSVLogger, TerminateOnNaN, LambdaCallback
# expects: equal
import csv
import os

import keras
import numpy as np
from sklearn.datasets import load_diabetes

import tfrun

strategy = tfrun.strategy()
x, y = load_diabetes(return_X_y=True)
x, y = x[:320] * 20, y[:320] / 150
SCHEDULES = {
    "cosine": keras.optimizers.schedules.CosineDecay(0.02, 20, warmup_target=0.05, warmup_steps=4),
    "restarts": keras.optimizers.schedules.CosineDecayRestarts(0.05, 8),
    "piecewise": keras.optimizers.schedules.PiecewiseConstantDecay([8, 16], [0.05, 0.01, 0.001]),
    "polynomial": keras.optimizers.schedules.PolynomialDecay(0.05, 20, 0.001, power=0.5),
}


def build(rate):
    keras.utils.set_random_seed(5)
    with strategy.scope():
        model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(rate, momentum=0.5), "mse", metrics=["mae"])
    return model


for name, schedule in SCHEDULES.items():
    history = build(schedule).fit(x, y, batch_size=40, epochs=3, verbose=0)
    print(name, "loss =", history.history["loss"][-1])

model = build(0.05)
lines = []
history = model.fit(
    x, y, batch_size=40, epochs=5, verbose=0, validation_split=0.25, shuffle=False,
    callbacks=[
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.3, patience=1, min_delta=0.05),
        keras.callbacks.CSVLogger("training.csv"),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: lines.append(f"epoch {epoch}: rate = {logs['learning_rate']}")),
        keras.callbacks.EarlyStopping(monitor="val_mae", patience=3, restore_best_weights=True, start_from_epoch=1),
        keras.callbacks.ModelCheckpoint("best.keras", monitor="val_loss", save_best_only=True),
        keras.callbacks.ModelCheckpoint("weights/{epoch:02d}-{val_loss:.2f}.weights.h5", save_weights_only=True),
    ],
)
print("\n".join(lines))
print("val_loss =", min(history.history["val_loss"]))
with open("training.csv") as f:
    rows = list(csv.DictReader(f))
print("rows =", len(rows), "last loss =", rows[-1]["loss"])
best = keras.models.load_model("best.keras")
print("best =", best.evaluate(x[240:], y[240:], verbose=0)[0])
print("saved =", len(os.listdir("weights")))
print("weights =", float(sum(np.abs(w).sum() for w in model.get_weights())))
