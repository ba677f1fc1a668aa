"""Of one process's `fit`, by epoch: milliseconds a step, and those outside the train function.

    overhead.py WORKLOAD

Without a strategy and on one batch that is there, so that nothing is left but the step and what
Keras, and tfrun if it is there, do around it.
"""

import sys
import time

import keras
import pinned
import tensorflow as tf
import workloads
from workloads import PER_WORKER, STEPS

EPOCHS = 16  # the first one traces and is left out


class Host(keras.callbacks.Callback):
    """Measures the calls of the train function, and all the rest of an epoch."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps, self._inside, self._began = steps, 0.0, 0.0
        self.step_times: list[float] = []
        self.host_times: list[float] = []

    def on_train_begin(self, logs=None):
        train = self.model.train_function

        def timed(iterator):
            began = time.perf_counter()
            try:
                return train(iterator)
            finally:
                self._inside += time.perf_counter() - began

        self.model.train_function = timed

    def on_epoch_begin(self, epoch, logs=None):
        self._inside, self._began = 0.0, time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        took = time.perf_counter() - self._began
        self.step_times.append(1000 * took / self._steps)
        self.host_times.append(1000 * (took - self._inside) / self._steps)


name = sys.argv[1]
model = workloads.compiled(keras, name)
x, y = workloads.samples(name)
size = PER_WORKER[name]
data = tf.data.Dataset.from_tensors((x[:size], y[:size])).repeat()
host = Host(STEPS[name])
model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS[name], verbose=0, callbacks=[host])
pinned.write([*host.step_times[1:], *host.host_times[1:]])
