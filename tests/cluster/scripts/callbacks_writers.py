"""Every callback of Keras that writes, on the same paths on all workers."""

import csv

import keras
from callbacks_common import FOLDER, barrier, dataset, finish, listing, model_of

model = model_of()
saves = FOLDER / "saves"
callbacks = [
    keras.callbacks.ModelCheckpoint(saves / "epoch-{epoch}.keras"),
    keras.callbacks.ModelCheckpoint(
        saves / "best.weights.h5", monitor="loss", save_best_only=True, save_weights_only=True
    ),
    keras.callbacks.ModelCheckpoint(saves / "step.keras", save_freq=3, monitor="loss"),
    keras.callbacks.CSVLogger(FOLDER / "log.csv", append=True),
]
history = model.fit(dataset(), epochs=2, validation_data=dataset(), callbacks=callbacks).history
again = keras.callbacks.CSVLogger(FOLDER / "log.csv", append=True)
model.fit(dataset(), epochs=1, callbacks=again)
barrier()
with (FOLDER / "log.csv").open() as file:
    rows = list(csv.DictReader(file))
saved = keras.models.load_model(saves / "epoch-2.keras")
finish(
    history=history,
    saves=listing("saves"),
    rows=len(rows),
    csv_loss=float(rows[1]["loss"]),
    saved=saved.evaluate(dataset(), verbose=0, return_dict=True),
    hidden=[name for name in listing(".") if "/." in name or name.startswith(".")],
)
