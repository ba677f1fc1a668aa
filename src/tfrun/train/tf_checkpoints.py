"""`tf.train.Checkpoint`, `CheckpointManager` and `tf.saved_model` on several workers.

A script written for one process has all workers write one file. Here the chief writes it, and the
others, at the same place of the script, wait until it is there and take over what the chief's
objects then know: the path, the counter, the manager's list. Whoever names another path than the
chief, as in TensorFlow's tutorial, writes that. The chief waits for nobody, so it may save alone.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrun.engine import multi_worker
from tfrun.engine.agree import spans_workers
from tfrun.engine.local_mode import default_strategy, in_local_mode, variables_distributed
from tfrun.job.errors import TfrunError
from tfrun.job.reports import CheckpointRestored, CheckpointSaved
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import channel, progress
from tfrun.state import numbered_calls
from tfrun.train import chief_journal
from tfrun.train.call_sites import CallPlace
from tfrun.train.chief_journal import Call, ChiefCall
from tfrun.train.saving import key_of, telling

Write = Callable[..., Any]
_log = logging.getLogger("tfrun")
_alone: set[CallPlace] = set()  # at which this worker saves and the chief does not
_said: list[bool] = []


def run_save(original: Write, checkpoint: Any, prefix: Any, options: Any = None) -> Any:
    """Runs `Checkpoint.save` or `write`."""
    counts = original.__name__ == "save"

    def know(path: str) -> dict[str, Any]:
        return {"path": path, "counter": int(checkpoint.save_counter.numpy()) if counts else None}

    def learn(told: dict[str, Any]) -> str:
        if counts:
            checkpoint.save_counter.assign(told["counter"])
        return told["path"]

    def write() -> Any:
        return original(checkpoint, prefix, _in_step(options))

    saved = _shared(checkpoint, prefix, write, know, learn, checkpoint._write)
    tell_step(CheckpointSaved, checkpoint)
    return saved


def run_manager_save(
    original: Write,
    manager: Any,
    checkpoint_number: Any = None,
    check_interval: bool = True,
    options: Any = None,
) -> Any:
    """Runs `CheckpointManager.save`."""
    checkpoint, kept = manager.checkpoint, manager._maybe_delete

    def know(path: str) -> dict[str, Any]:
        # Without a limit the list grows for ever, and nothing ever leaves it.
        changed = list(kept.items()) if manager._max_to_keep else [(path, kept[path])]
        counter = int(checkpoint.save_counter.numpy())
        preserved = manager._last_preserved_timestamp
        return {"path": path, "counter": counter, "kept": changed, "preserved": preserved}

    def learn(told: dict[str, Any]) -> str:
        checkpoint.save_counter.assign(told["counter"])
        if manager._max_to_keep:
            kept.clear()
        for path, when in told["kept"]:
            kept.pop(path, None)
            kept[path] = when
        manager._last_preserved_timestamp = told["preserved"]
        manager._latest_checkpoint = told["path"]
        if manager.checkpoint_interval is not None:
            manager._last_checkpoint_step = manager._step_counter.numpy()
        return told["path"]

    def write() -> Any:
        return original(manager, checkpoint_number, check_interval, _in_step(options))

    if not _is_due(manager, check_interval):
        return write()  # which writes nothing
    path = manager._checkpoint_prefix
    saved = _shared(checkpoint, path, write, know, learn, checkpoint._write)
    tell_step(CheckpointSaved, checkpoint)
    return saved


def run_saved_model(original: Write, obj: Any, export_dir: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs `tf.saved_model.save`."""

    def write(path: Any = export_dir) -> Any:
        with variables_distributed():  # it enters the save context itself
            return original(obj, path, *args, **kwargs)

    return _shared(obj, export_dir, write, lambda _: {}, lambda _: None, write)


def _shared(
    root: Any,
    path: Any,
    write: Callable[[], Any],
    know: Callable[[Any], dict[str, Any]],
    learn: Callable[[dict[str, Any]], Any],
    write_aside: Callable[[str], Any],
) -> Any:
    """Has the chief write, and the others know what it has written.

    Args:
      root: what is saved.
      path: where to.
      write: does it, as TensorFlow would.
      know: what the chief tells, from what `write` has returned.
      learn: takes that over on the others; returns what their call returns.
      write_aside: writes the same values to another path.
    """
    if multi_worker.newest() is None or in_local_mode() or not tf.executing_eagerly():
        return write()
    call = chief_journal.call(key_of(path))
    if not call.place.frames:  # a thread of TensorFlow's own
        return write()
    if settings().rehearses:
        raise SystemExit("what the job has saved before is not known to who rehearses")
    summed = _summed_over_workers(root)
    with default_strategy():  # a counter that is made here is each worker's own
        if world().is_chief:
            with progress.pausing(), telling(call) as told:
                if summed:
                    _await_others(call, summed[0])
                result = write()
                told.update(know(result))
            return result
        with progress.in_collective():
            save = _of_chief(call)
        if save is None:
            return write()
        if summed:
            chief_journal.arrive(call)
        if save.path != call.path:
            with progress.pausing():
                result = write()
            chief_journal.reader.wait(save)
            return result
        if summed:  # the chief reads them with us
            with tempfile.TemporaryDirectory() as folder:
                write_aside(str(Path(folder, "aside")))
        with progress.in_collective():
            return learn(chief_journal.reader.result(save))


def _of_chief(call: Call) -> ChiefCall | None:
    """What the chief saves at this place; None when it does not come here."""
    find, seconds = chief_journal.reader.find, chief_journal.START_SECONDS
    if call.place in _alone and not find(lambda save: call.place.is_met_by(save.frames), 0):
        return None
    save = find(lambda save: save.meets(call), seconds)
    if save is None:
        _alone.add(call.place)
        _log.warning(
            "worker %d saves %s itself: the chief has not come to save it for %.0f s (%s).",
            *(world().rank, call.path, seconds, call.place),
        )
    return save


def _await_others(call: Call, summed: str) -> None:
    for rank in range(1, world().size):
        if not chief_journal.has_arrived(call, rank):
            raise TfrunError(
                "TFRUN-505",
                f"{call.path} holds the variable {summed!r}, which is summed over all workers when "
                f"it is read, but worker {rank} has not come to save it",
                where=str(call.place),
                expected="all workers to save it at the same place of the script",
                fix="Call save on all workers: only the chief writes",
            )


def _summed_over_workers(root: Any) -> list[str]:
    """The names of the variables that nobody can read without the others."""
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    found = []
    for each in tf.train.TrackableView(root).descendants():
        variable = each.value if isinstance(each, keras.Variable) else each
        if (
            isinstance(variable, tf.distribute.DistributedValues)
            and spans_workers(getattr(variable, "distribute_strategy", None))
            and variable.synchronization == tf.VariableSynchronization.ON_READ
            and variable.aggregation != first
        ):
            found.append(variable.name)
    return found


def _is_due(manager: Any, check_interval: bool) -> bool:
    """Whether `CheckpointManager.save` would write: all workers count the same steps."""
    every, last = manager.checkpoint_interval, getattr(manager, "_last_checkpoint_step", None)
    if every is None or last is None:
        return True
    step = manager._step_counter.numpy()
    return step != last and not (check_interval and step < last + every)


def _in_step(options: Any) -> Any:
    """The same options, but that the file is there when the call returns."""
    wanted = getattr(options, "experimental_enable_async_checkpoint", False)
    if not wanted or multi_worker.newest() is None:
        return options
    if world().is_chief and not _said:
        _said.append(True)
        _log.warning(
            "experimental_enable_async_checkpoint has no effect on several workers: "
            "the others wait until the chief has written the file."
        )
    options = copy.copy(options)
    options.experimental_enable_async_checkpoint = False
    return options


def tell_step(kind: type[CheckpointSaved | CheckpointRestored], root: Any) -> None:
    """Tells how far a loop is that saves and restores by itself, by what it puts into `root`.

    Nobody sees the steps of a loop that uses neither `fit` nor a `tfrun.TrainState`. What it puts
    into a `tf.train.Checkpoint` mostly counts them: an optimizer's `iterations`, a variable of its
    own. So the launcher learns that a job which is started again and again does advance.
    """
    if not channel.is_open() or numbered_calls.have_begun() or not world().is_chief:
        return
    if not tf.executing_eagerly() or not isinstance(root, tf.train.Checkpoint):
        return
    with contextlib.suppress(Exception):  # whatever is in it: its save or restore has worked
        if (step := step_of(root)) is not None:
            channel.emit(kind(step=step))


def step_of(root: Any) -> int | None:
    """Returns the largest whole number that a variable of its holds; None without any."""
    found: list[int] = []
    for each in tf.train.TrackableView(root).descendants():
        value = each.value if isinstance(each, keras.Variable) else each
        if not isinstance(value, tf.Variable) or value.shape.rank != 0:
            continue
        if value.synchronization == tf.VariableSynchronization.ON_READ:
            continue  # to read it needs all workers
        # TensorFlow's own counter is one of files.
        if value.dtype.is_integer and "save_counter" not in value.name:
            found.append(int(np.asarray(value.numpy())))
    return max(found, default=None)
