"""How long the steps of `fit` take, epoch by epoch, whichever Keras trains."""

from __future__ import annotations

import time
from typing import Any

import quantities


def of(keras: Any, steps: int) -> Any:
    """Returns a callback of this Keras; its `times` are each epoch's milliseconds a step.

    Args:
      keras: the library.
      steps: of an epoch.
    """

    class Clock(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.times = []

        def on_epoch_begin(self, epoch, logs=None):
            quantities.epoch_begins(epoch)
            self.start = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            self.times.append((time.perf_counter() - self.start) / steps * 1000)
            quantities.epoch_ends(steps)

    return Clock()
