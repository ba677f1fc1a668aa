"""`--sync-check`: compares all variables of all workers every so many steps of a training."""

from __future__ import annotations

from typing import Any

import keras

from tfrun.engine.sync_check import check_in_sync
from tfrun.state.fit_keeper import steps_of


class SyncCheck(keras.callbacks.Callback):
    """Compares all variables of all workers every `every` steps."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self._every = every
        self._checked = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._checked = self._iterations()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        # With `steps_per_execution` the hook comes once for several steps.
        model: Any = self.model
        steps = self._iterations()
        if steps // self._every != self._checked // self._every:
            self._checked = steps
            variables = [*model.variables, *model.optimizer.variables]
            check_in_sync([(variable.path, variable) for variable in variables])

    def _iterations(self) -> int:
        model: Any = self.model
        return steps_of(model.optimizer)
