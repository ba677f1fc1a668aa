"""`--sync-check`: compares all variables of all workers every so many steps of a training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import keras

from tfrun.engine.sync_check import check_in_sync
from tfrun.job.errors import UsageError


def interval(environment: Mapping[str, str]) -> int:
    """Returns the steps between two sync checks, 0 for none.

    Raises:
      UsageError: TFRUN-105 where TFRUN_SYNC_CHECK is not a whole number.
    """
    text = environment.get("TFRUN_SYNC_CHECK") or "0"
    if not text.isdecimal():
        raise UsageError(
            "TFRUN-105",
            f"{text!r} is not a number of steps",
            where="TFRUN_SYNC_CHECK",
            expected="a whole number, 0 to switch the check off",
        )
    return int(text)


def of_loop(variables: Callable[[], Mapping[str, Any]]) -> Callable[[int], None]:
    """Returns what a loop of the script's own calls with the number of each step that is done.

    Args:
      variables: gives those that are compared, by name.
    """
    every = interval(os.environ)

    def done(step: int) -> None:
        if every and step % every == 0:
            check_in_sync(variables().items())

    return done


class SyncCheck(keras.callbacks.Callback):
    """Compares all variables of all workers every `every` steps (TFRUN_SYNC_CHECK)."""

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
        return int(model.optimizer.iterations.numpy())
