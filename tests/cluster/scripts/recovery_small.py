"""A short training; FAULT says what befalls it in its first round; the digest of the weights."""

import hashlib
import os
import signal
import time
from pathlib import Path

import keras
import numpy as np

import tfrun

FAULT = os.environ.get("FAULT", "")
HERE = tfrun.world()


class Fault(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if HERE.round == 0 and FAULT in ("term", "launcher") and (self.epoch, batch) > (1, 20):
            # Steps of a model of some size: 60 of this one are over before anybody is told.
            time.sleep(0.1)
        if HERE.round or self.epoch != 1 or batch != 20:
            return
        if FAULT == "hang" and HERE.rank == 1:
            time.sleep(1000)
        if FAULT == "term" and HERE.rank == 0:
            # The launcher: the agent's parent, whose child the zygote is, whose fork this is.
            os.kill(int(os.environ["LAUNCHER"]), signal.SIGTERM)
        if FAULT == "launcher" and HERE.rank == 0:
            os.kill(int(os.environ["LAUNCHER"]), signal.SIGKILL)
        if FAULT == "kill" and HERE.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "zygote" and HERE.rank == 1:
            os.kill(os.getppid(), signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGKILL)
        if FAULT == "unkillable" and HERE.rank == 1:
            with Path("unkillable").open("w") as file:
                file.write(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)

    def on_test_batch_end(self, batch, logs=None):
        if FAULT == "validation" and (HERE.round, HERE.rank, self.epoch, batch) == (0, 1, 1, 2):
            time.sleep(1000)


with tfrun.strategy().scope():
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(24 if FAULT == "changed" else 16),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer="adam", loss="mse")
x = np.random.RandomState(0).rand(640, 8).astype("float32")
validation = {"validation_data": (x[:80], x[:80].sum(1))} if FAULT == "validation" else {}
history = model.fit(
    x, x.sum(1), batch_size=16, epochs=3, verbose=2, callbacks=[Fault()], **validation
)
digest = hashlib.sha256()
for variable in [*model.variables, *model.optimizer.variables]:
    digest.update(variable.numpy().tobytes())
print("WEIGHTS", digest.hexdigest(), history.epoch)
