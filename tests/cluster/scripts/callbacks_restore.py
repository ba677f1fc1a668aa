"""BackupAndRestore: a run that breaks off, and one that goes on from it, on all workers."""

import keras
import numpy as np
from callbacks_common import FOLDER, RANK, barrier, dataset, finish, listing, model_of


class Break(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


class Epochs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen, self.loaded = [], None

    def on_epoch_begin(self, epoch, logs=None):
        if self.loaded is None:
            self.loaded = digest(self.model)
        self.seen.append(epoch)


def digest(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [float(np.sum(np.abs(v.numpy().astype("float64")))) for v in variables]


# Each worker asks for a path of its own: only the chief's exists, as on machines without a
# shared file system.
backup = FOLDER / f"backup-{RANK}"
first = model_of()
try:
    first.fit(
        dataset(),
        epochs=4,
        callbacks=[keras.callbacks.BackupAndRestore(backup, delete_checkpoint=False), Break()],
    )
except KeyboardInterrupt:
    pass
broke = digest(first)
barrier()
left = listing(".")

second, epochs = model_of(), Epochs()
second.fit(
    dataset(), epochs=4, callbacks=[keras.callbacks.BackupAndRestore(backup, save_freq=2), epochs]
)
straight = model_of()
straight.fit(dataset(), epochs=4)
barrier()
finish(
    left=left,
    restored=epochs.loaded == broke,
    epochs=epochs.seen,
    iterations=int(second.optimizer.iterations.numpy()),
    end=digest(second),
    straight=digest(straight),
    after=listing("."),
)
