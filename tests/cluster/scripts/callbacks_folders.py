"""ModelCheckpoint into folders that are not there: only the chief makes, prints, and runs code."""

import contextlib
import io
from pathlib import Path

import keras
from callbacks_common import FOLDER, RANK, barrier, dataset, finish, listing, model_of
from keras.src.utils import file_utils

made = []
original = file_utils.makedirs


def makedirs(path):
    """On the others, somebody has made the folder since Keras asked: the race, each time."""
    if Path(path).is_relative_to(FOLDER):
        made.append(str(Path(path).relative_to(FOLDER)))
    if RANK:
        Path(path).mkdir(parents=True, exist_ok=True)
    return original(path)


file_utils.makedirs = makedirs


class Own(keras.callbacks.ModelCheckpoint):
    """Writes a second file, and more in a hook."""

    def _save_model(self, epoch, batch, logs):
        super()._save_model(epoch, batch, logs)
        (FOLDER / f"saved-{RANK}-{epoch}.txt").write_text("saved")

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        print("an own hook")
        (FOLDER / f"hook-{RANK}.txt").write_text("hook")


def best(name, **options):
    path = str(FOLDER / name / "{epoch}" / "best.weights.h5")
    return Own(
        path, monitor="loss", save_best_only=True, save_weights_only=True, verbose=1, **options
    )


model = model_of()
callbacks = [
    keras.callbacks.ModelCheckpoint(str(FOLDER / "each" / "{epoch}" / "m.keras"), verbose=1),
    best("best"),
    best("steps", save_freq=3),
    keras.callbacks.BackupAndRestore(
        str(FOLDER / "backup" / "deep"), double_checkpoint=True, delete_checkpoint=False
    ),
    keras.callbacks.CSVLogger(str(FOLDER / f"log-{RANK}.csv")),
]
said = io.StringIO()
with contextlib.redirect_stdout(said):
    model.fit(dataset(), epochs=2, callbacks=callbacks, verbose=0)
barrier()
fit_made, fit_files = list(made), listing(".")
made.clear()

# In a loop of the script's own all workers run the callbacks.
by_hand = keras.callbacks.ModelCheckpoint(
    str(FOLDER / "hand" / "m.weights.h5"), save_weights_only=True
)
by_hand.set_model(model)
by_hand.on_epoch_begin(0)
by_hand.on_epoch_end(0, {"loss": 1.0})
barrier()
own = [vars(callback) for callback in callbacks[:3]]
finish(
    made=fit_made,
    files=fit_files,
    said=said.getvalue(),
    hand=listing("hand"),
    hand_made=made,
    remembered=[
        {
            name: float(state[name])
            for name in ("best", "_batches_seen_since_last_saving", "verbose")
        }
        | {"shadowed": "_save_model" in state}
        for state in own[1:]
    ],
)
