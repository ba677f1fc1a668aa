"""Trainings that are done: what `fit` returned, and the model as it stood.

A script that runs again passes them by: `fit` returns at once, a `TrainState` has no steps left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
from numpy.typing import NDArray
from safetensors import SafetensorError

from tfrun.data import resume
from tfrun.data.dataset import Dataset
from tfrun.data.position import Position
from tfrun.train import callback_state, random_state, snapshot, variables
from tfrun.train.snapshot import Place, Snapshot

BUDGET = 1 << 30  # bytes of shared memory for the models of all calls


def path_of(folder: Path, call: int) -> Path:
    """The file of a call on this machine."""
    return folder / f"call-{call}.safetensors"


def last(folder: Path) -> int:
    """The number of the last call that is done; -1 when none is."""
    names = (path.stem.partition("-")[2] for path in folder.glob("call-*.safetensors"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def record(
    folder: Path, call: int, model: Any, history: Any, callbacks: Sequence[Any], data: Any
) -> None:
    """Keeps what a call has returned and left; a full memory keeps nothing and says nothing."""
    path = path_of(folder, call)
    if path.exists():  # another worker of this machine was quicker
        return
    arrays: dict[str, NDArray] = {
        name: variables.copies(variable)[0].numpy()
        for name, variable in variables.state_variables(model).items()
    }
    position = data.position if isinstance(data, Dataset) else None
    values = {
        "history": snapshot.encode(dict(history.history), arrays, "history"),
        "epoch": list(history.epoch),
        "params": {k: v for k, v in (history.params or {}).items() if isinstance(v, int)},
        "callbacks": callback_state.take(callbacks, arrays),
        "random": random_state.encode(random_state.take(), arrays),
        "position": position and [position.epoch, position.step],
    }
    write(folder, call, Snapshot(place=Place(), values=values, arrays=arrays))


def write(folder: Path, call: int, left: Snapshot) -> None:
    """Keeps what a training has left, at whatever place; see `record`."""
    path = path_of(folder, call)
    if path.exists():
        return
    try:
        snapshot.write_file(path, replace(left, place=Place(call=call + 1)))
    except (OSError, TypeError, SafetensorError):
        return
    _stay_within_budget(folder, call)


def replay(
    done: Snapshot, model: Any, callbacks: Sequence[Any], data: Any, build: Callable[[], Any]
) -> Any:
    """Gives back what the call has returned, and the model as it stood.

    Args:
      done: from `record`.
      model: the model in the script that runs again.
      callbacks: the user's.
      data: what `fit` was given.
      build: makes the variables of a model that has none yet.
    """
    # Another `fit` may go on in the same data.
    resume.request(resume.Resume(epochs=len(done.values["epoch"]), whole=True))
    build()
    for name, variable in variables.state_variables(model).items():
        if name in done.arrays:
            variables.assign(variable, done.arrays[name])
    callback_state.put_back(callbacks, done.values["callbacks"], done.arrays)
    if isinstance(data, Dataset) and done.values["position"]:
        epoch, step = done.values["position"]
        data.advance(Position(epoch=epoch, step=step))
    random_state.put_back(done.values["random"], done.arrays)
    history = keras.callbacks.History()
    history.set_params(done.values["params"])
    history.set_model(model)
    history.epoch = done.values["epoch"]
    history.history = snapshot.decode(done.values["history"], done.arrays)
    model.history = history
    return history


def _stay_within_budget(folder: Path, newest: int) -> None:
    """Drops the models of the oldest calls, but not what they returned."""
    paths = [path_of(folder, call) for call in range(newest + 1)]
    there = [path for path in paths if path.exists()]
    excess = sum(path.stat().st_size for path in there) - BUDGET
    for path in there[:-1]:
        if excess <= 0:
            return
        done = snapshot.read_file(path)
        if done is None:
            continue
        excess -= path.stat().st_size
        small = {name: a for name, a in done.arrays.items() if not _is_variable(name)}
        snapshot.write_file(path, Snapshot(place=done.place, values=done.values, arrays=small))


def _is_variable(name: str) -> bool:
    return name.startswith(("model/", "optimizer/"))
