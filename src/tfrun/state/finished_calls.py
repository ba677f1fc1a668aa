"""Keeps the results of finished trainings: what `fit` returned, and the model as it stood.

A script that runs again passes them by: `fit` returns at once, a `TrainState` has no steps left.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
from numpy.typing import NDArray
from safetensors import SafetensorError

from tfrun.checkpoint import durable_files
from tfrun.checkpoint.remote_directory import RemoteDirectory
from tfrun.data.dataset import Dataset
from tfrun.data.order.position import Position
from tfrun.engine import variable_values
from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings
from tfrun.process import channel
from tfrun.state import (
    callback_state,
    fit_keeper,
    kept_outside,
    no_room,
    plain_data,
    random_state,
    snapshot,
)
from tfrun.state.callback_memory import Memory
from tfrun.state.fit_data import FitData
from tfrun.state.snapshot import Place, Snapshot
from tfrun.storage.url import is_url

ASK_SECONDS = 2.0  # that a storage may take to say whether it has a call
BUDGET = 1 << 30  # bytes of shared memory for the models of all calls


def of_fit(
    memory: Memory,
    model: Any,
    history: Any,
    callbacks: Sequence[Any],
    data: Any,
    reads: FitData,
) -> Snapshot | None:
    """What a `fit` has returned and left; None, which is said, where that cannot be kept.

    `memory` is that of its callbacks, and `reads` knows where it stands in its data.
    """
    found = _variables(model, callbacks)
    arrays: dict[str, NDArray] = dict(
        zip(found, variable_values.arrays(found.values()), strict=True)
    )
    position = data.position if isinstance(data, Dataset) else None
    try:
        encoded = plain_data.encode(dict(history.history), arrays, "history")
    except TypeError as error:
        text = f"What this `fit` returns cannot be kept: in its History, {error}. Training goes on,"
        text += " but after a failure this `fit` would have to train again."
        channel.emit(reports.WorkerNotice(text=text))
        return None
    values = {
        "optimizers": variable_values.trained(
            model.variables, variable_values.optimizers_of(model)
        ),
        "history": encoded,
        "epoch": list(history.epoch),
        "params": {k: v for k, v in (history.params or {}).items() if isinstance(v, int)},
        **memory.kept(memory.take(callbacks), arrays),
        "random": random_state.encode(random_state.take(), arrays),
        "begun": list(reads.stand),
        **random_state.drawn(reads.orders, arrays),
        "position": position and [position.epoch, position.step],
    }
    return Snapshot(place=Place(), values=values, arrays=arrays)


def _variables(model: Any, callbacks: Sequence[Any]) -> dict[str, Any]:
    found = variable_values.all_variables(model)
    besides = (*found.values(), *model.metrics_variables)
    return {**found, **callback_state.variables(callbacks, besides)}


def write(folder: Path, call: int, left: Snapshot, *, models: Sequence[Any]) -> None:
    """Keeps what a training has left of `models`; a full memory keeps nothing, and says so."""
    path = snapshot.path_of_call(folder, call)
    values = {**left.values, "models": [_number_of(model) for model in models]}
    try:
        snapshot.write_file(path, replace(left, place=Place(call=call + 1), values=values))
    except (OSError, SafetensorError) as error:
        no_room.say(folder, "nothing of a training that is done", error)
        return
    except TypeError:
        return
    _stay_within_budget(folder, call)


def replay(
    memory: Memory,
    done: Snapshot,
    model: Any,
    callbacks: Sequence[Any],
    data: Any,
    build: Callable[[], Any],
) -> Any:
    """Gives back what the call has returned, and the model as it stood.

    Args:
      memory: that of its callbacks.
      done: from `of_fit`.
      model: the model in the script that runs again.
      callbacks: the user's.
      data: what `fit` was given.
      build: makes the variables of a model that has none yet, and goes past its data.
    """
    build()
    fit_keeper.build_what_steps_make(model, done)

    def begin(callback: Any) -> None:
        callback.set_params(done.values["params"])
        callback.set_model(model)
        callback.on_train_begin()

    there = _variables(model, callbacks)
    callback_state.begin_those_without(there, done.arrays, callbacks, begin)
    there = _variables(model, callbacks)
    for name, variable in there.items():
        if name in done.arrays:
            variable_values.assign(variable, done.arrays[name])
    kept_outside.tell_missing(there, done)
    memory.put_back(callbacks, done.values, done.arrays)
    if isinstance(data, Dataset) and done.values["position"]:
        epoch, step = done.values["position"]
        data.advance(Position(epoch=epoch, step=step))
    random_state.put_back(done.values["random"], done.arrays)
    history = keras.callbacks.History()
    history.set_params(done.values["params"])
    history.set_model(model)
    history.epoch = done.values["epoch"]
    history.history = plain_data.decode(done.values["history"], done.arrays)
    model.history = history
    return history


def _stay_within_budget(folder: Path, newest: int) -> None:
    """Takes the models of the oldest calls out of the memory: those that are elsewhere too.

    A later call of the same model holds what the script will see of it in the end; what is on the
    disk comes back when it is asked for.
    """
    there = [path for call, path in sorted(snapshot.calls(folder).items()) if call <= newest]
    excess = sum(path.stat().st_size for path in there) - BUDGET
    if excess <= 0:
        return
    owners = [(snapshot.read_values(path) or {}).get("models", ()) for path in there]
    for number, path in enumerate(there[:-1]):
        if excess <= 0:
            return
        size = path.stat().st_size
        if {model for later in owners[number + 1 :] for model in later}.issuperset(owners[number]):
            if done := snapshot.read_file(path, variables=False):
                snapshot.write_file(path, done)
                excess -= size - path.stat().st_size
        elif _is_on_disk(path.name):
            path.unlink(missing_ok=True)
            excess -= size


def _is_on_disk(name: str) -> bool:
    """Whether the call's file is beside the checkpoints."""
    directory = settings().checkpoint_dir
    if is_url(directory):
        with contextlib.suppress(TfrunError):
            return RemoteDirectory(directory, patience=ASK_SECONDS).has_call(name)
        return False
    return bool(directory) and Path(directory, snapshot.CALLS, name).exists()


def from_disk(name: str, target: Path) -> None:
    """Copies the call's file from beside the checkpoints, if it is there.

    Raises:
      TfrunError: TFRUN-704 where object storage cannot be asked.
    """
    directory = settings().checkpoint_dir
    with contextlib.suppress(OSError):
        if is_url(directory):
            RemoteDirectory(directory).fetch_call(name, target)
        elif directory:
            durable_files.copy(Path(directory, snapshot.CALLS, name), target)


_models: list[weakref.ref[Any]] = []


def _number_of(model: Any) -> int:
    """The same for a model in each run of the script; no two that live have one."""
    for number, known in enumerate(_models):
        if known() is model:
            return number
    _models.append(weakref.ref(model))
    return len(_models) - 1
