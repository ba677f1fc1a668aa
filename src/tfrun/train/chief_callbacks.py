"""Runs callbacks on the chief alone."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrun.engine import host_collective
from tfrun.engine.agree import from_chief, multi_worker_strategy
from tfrun.engine.local_mode import local_mode
from tfrun.job.world import world
from tfrun.state.callback_state import StandIn

_HOOKS = tuple(name for name in dir(keras.callbacks.Callback) if name.startswith("on_"))


class ChiefOnly(StandIn):
    """Runs a callback on the chief alone; on the other workers it does nothing.

    `fit` puts Keras's own writers (ModelCheckpoint, BackupAndRestore, TensorBoard, CSVLogger, …)
    into one by itself; use it for a callback of your own that writes, prints or sends something.

    Within its methods the model is the chief's own: `evaluate` and `predict` run on all the data
    given to them on the chief while the other workers wait at their next step, and leave the
    training's metrics, seeds and statistics as they were. `save`, `save_weights`, `export`,
    `get_weights` and direct calls work. A metric's `result()` is the chief's share; the whole
    job's is in `logs`. `stop_training` may be set. Weights and the optimizer's variables may be
    swapped for a while but have to be back at the end: the workers would no longer be equal.

    Outside a job, and in a job of one worker, it changes nothing.

    Args:
      callback: any `keras.callbacks.Callback`.

    Raises:
      TfrunError: TFRUN-505, from the callback's own method, when that asks for something that
        needs every worker: `fit`, `train_on_batch`, a collective of the strategy, another
        learning rate.

    Example:
        ```python
        model.fit(data, callbacks=[tfrun.ChiefOnly(MyReport())])
        ```
    """

    def __init__(self, callback: keras.callbacks.Callback) -> None:
        super().__init__()
        self.callback = callback
        self._strategy: Any | None = None
        self._live: set[str] = set()
        self._here = world().is_chief

    def set_params(self, params: dict[str, Any] | None) -> None:
        super().set_params(params)
        self.callback.set_params(params)

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self._strategy = multi_worker_strategy(model)
        self._live = {"set_model", *filter(self._has_own, _HOOKS)}
        self._call("set_model", model)

    @property
    def is_elsewhere(self) -> bool:
        # That one decides on every worker, see `_call`.
        return not (self._here or isinstance(self.callback, keras.callbacks.ModelCheckpoint))

    def take_part(self) -> None:
        """From now on this worker is the chief."""
        self._here = True

    def _has_own(self, hook: str) -> bool:
        """True when the callback does something in `hook`: entering local mode costs a step."""
        names = (hook, hook.replace("on_train_batch", "on_batch"))  # Keras's base calls the other
        return any(
            getattr(getattr(self.callback, name), "__func__", None)
            is not getattr(keras.callbacks.Callback, name)
            for name in names
        )

    def _call(self, hook: str, *args: Any, keep_changes: bool = False) -> None:
        if hook not in self._live:
            return
        if not self._here:
            if isinstance(self.callback, keras.callbacks.ModelCheckpoint):
                # It remembers what was the best so far, and the chief may die.
                saving_nothing(self.callback, hook, args)
            return
        if self._strategy is None:
            getattr(self.callback, hook)(*args)
            return
        with local_mode(self._strategy, self.model, keep_changes=keep_changes):
            getattr(self.callback, hook)(*args)


def _forward(hook: str) -> Any:
    def forward(self: ChiefOnly, *args: Any, **kwargs: Any) -> None:
        # CallbackList passes the logs now by position, now by name.
        self._call(hook, *args, *kwargs.values())

    forward.__name__ = hook
    return forward


for _hook in _HOOKS:
    setattr(ChiefOnly, _hook, _forward(_hook))


def saving_nothing(callback: Any, hook: str, args: tuple[Any, ...]) -> None:
    """Runs a hook of Keras's ModelCheckpoint, which decides and remembers but makes nothing.

    No folder, no file, no print, and no code of a subclass but its decisions: Keras itself
    would make the folder of a file that `save` then does not write, and workers of one machine
    would make it at the same moment (keras 3.15, model_checkpoint.py, `_save_model`).
    """

    def decide(epoch: int, batch: int | None, logs: dict[str, Any] | None) -> None:
        path = callback._get_file_path(epoch, batch, logs)
        callback._should_save_model(epoch, batch, logs, path)

    verbose, callback.verbose = callback.verbose, 0
    callback._save_model = decide
    try:
        getattr(keras.callbacks.ModelCheckpoint, hook)(callback, *args)
    finally:
        del callback._save_model
        callback.verbose = verbose


class RestoreEverywhere(ChiefOnly):
    """BackupAndRestore: the chief writes and reads the backup, all workers get its state.

    The state travels over the job's own collective, so no shared file system is needed, and a
    worker cannot see a backup that the chief does not see. As in one process, the backup names
    the batch but Keras resumes at the start of its epoch (keras 3.15, backup_and_restore.py).
    """

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self._strategy is None:
            self._call("on_train_begin", logs)
            return
        calls = host_collective.calls_of(self._strategy)
        if calls is not None and calls.joins is not None:
            return  # others are further than any backup, and it is about to join them
        self._call("on_train_begin", logs, keep_changes=True)
        model: Any = self.model
        found = self._here and tf.io.gfile.exists(self.callback.backup_dir)
        plan = np.array([found, model._initial_epoch or 0], np.int64)
        (plan,) = from_chief(self._strategy, [plan])
        if not plan[0]:
            return
        variables = [*model.variables, *(model.optimizer.variables if model.optimizer else ())]
        values = from_chief(self._strategy, [v.numpy() for v in variables])
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        model._initial_epoch = int(plan[1])
