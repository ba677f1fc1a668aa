"""A `fit` of 60 steps. KILLS: for each round "STEP:RANK", who is killed at which step's end.

Without a rank all are, as soon as the disk has a checkpoint; nothing is in the machine's memory.
"""

import os
import signal
import time
from pathlib import Path

import keras
import numpy as np

import tfrun

HERE = tfrun.world()
kills = os.environ["KILLS"].split()
step, _, rank = kills[HERE.round].partition(":") if HERE.round < len(kills) else ("", "", "")


class Fault(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if str(int(self.model.optimizer.iterations.numpy())) != step:
            return
        if not rank:
            deadline = time.monotonic() + 30
            while not list(Path("run", "checkpoints").glob("ckpt-*")):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        if not rank or int(rank) == HERE.rank:
            os.kill(os.getpid(), signal.SIGKILL)


with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.random.RandomState(0).rand(480, 4).astype("float32")
model.fit(x, x.sum(1), batch_size=16, epochs=2, verbose=0, callbacks=[Fault()])
print("STEPS", int(model.optimizer.iterations.numpy()), "round", HERE.round)
