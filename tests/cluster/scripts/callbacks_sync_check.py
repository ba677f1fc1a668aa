"""The sync check: silent while all is well, and it names what differs on one worker."""

import keras
import numpy as np
from callbacks_common import RANK, dataset, finish, model_of
from restated import restate

import tfrun

model = model_of()
restate(sync_check=2)
steps = len(model.fit(dataset(), epochs=1).history["loss"])


class Disturb(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if RANK == 1:
            kernel = self.model.layers[-1].kernel
            kernel.assign(kernel.numpy() + np.float32(1e-3))


try:
    model.fit(dataset(), epochs=1, callbacks=[Disturb()])
    code = message = None
except tfrun.TfrunError as error:
    code, message = error.code, str(error)
finish(
    healthy=steps, code=code, message=message, iterations=int(model.optimizer.iterations.numpy())
)
