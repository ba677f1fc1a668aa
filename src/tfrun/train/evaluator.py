"""The evaluator: a separate process that runs the script, and evaluates where others train.

As TensorFlow's `SidecarEvaluator`, but the script stays what it is: its `fit` returns when the
chief's is done, and has evaluated each checkpoint of it that it came to, with `validation_data`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
from numpy.typing import NDArray

from tfrun.checkpoint.atomic_store import Store
from tfrun.checkpoint.remote_directory import RemoteDirectory
from tfrun.checkpoint.remote_store import RemoteStore
from tfrun.engine import variable_values
from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings
from tfrun.process import channel
from tfrun.state import numbered_calls, snapshot
from tfrun.state.snapshot import Snapshot
from tfrun.storage import scratch
from tfrun.storage.url import is_url

LOOK_SECONDS = 0.5
LOOK_REMOTE_SECONDS = 5.0  # each look is two requests, which cost something
# What `fit` and `evaluate` call alike, and `fit` calls by another name.
_ARGUMENTS = {
    "validation_batch_size": "batch_size",
    "validation_steps": "steps",
}


def run_fit(model: Any, arguments: Mapping[str, Any]) -> keras.callbacks.History:
    """Evaluates the checkpoints of the `fit` that the chief runs at this place of the script.

    Returns:
      A history whose `epoch` holds steps, and whose metrics have the names that `fit` gives them.

    Raises:
      TfrunError: TFRUN-509 where there is nothing to evaluate with, or nothing to evaluate.
    """
    number, data = numbered_calls.begin(), _data(arguments)
    history = keras.callbacks.History()
    history.set_model(model)
    history.on_train_begin()
    model.history = history
    for step, arrays in _states(number):
        logs = _evaluate(model, arrays, data)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in logs.items())
        channel.emit(reports.WorkerNotice(text=f"step {step:,}: {shown}"))
        channel.emit(reports.Evaluated(call=number, step=step, logs=logs))
        history.on_epoch_end(step, {f"val_{name}": value for name, value in logs.items()})
    return history


def _data(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `evaluate`."""
    data = arguments.get("validation_data")
    if data is None:
        raise TfrunError(
            "TFRUN-509",
            "fit has no validation_data, which the evaluator evaluates with",
            where="fit",
            expected="validation_data",
            fix="Pass it to fit, or leave out --evaluator",
        )
    names = ("x", "y", "sample_weight")
    found: dict[str, Any] = {"x": data}
    if isinstance(data, tuple | list):
        found = dict(zip(names, data, strict=False))
    more = {to: arguments[name] for name, to in _ARGUMENTS.items() if arguments.get(name)}
    if "batch_size" not in more and isinstance(data, tuple | list) and arguments.get("batch_size"):
        more["batch_size"] = arguments["batch_size"]
    return {**found, **more}


def _evaluate(model: Any, arrays: Mapping[str, NDArray], data: Mapping[str, Any]) -> dict[str, Any]:
    quiet = {"verbose": 0, "return_dict": True}
    if not model.built:
        model.evaluate(**{**data, "steps": 1}, **quiet)  # which makes its variables
    for name, variable in variable_values.named(model.variables, []).items():
        if name in arrays:
            variable_values.assign(variable, arrays[name])
    return {name: float(value) for name, value in model.evaluate(**data, **quiet).items()}


def _states(number: int) -> Iterator[tuple[int, Mapping[str, NDArray]]]:
    """Yields the steps and the variables of a training, the newest each time, until its end."""
    directory = settings().checkpoint_dir
    if not directory:
        raise TfrunError(
            "TFRUN-509",
            "the evaluator is not told where the job's checkpoints are",
            where="--checkpoint-dir",
            expected="the directory that the chief saves to",
            fix="Name it with --checkpoint-dir",
        )
    store: Store | RemoteStore
    if is_url(directory):
        remote = RemoteDirectory(directory)
        store = remote.store(state_dir=settings().state_path, read_only=True)
    else:
        remote, store = None, Store(directory, read_only=True)
    over, last, wait = threading.Event(), -1, LOOK_REMOTE_SECONDS if remote else LOOK_SECONDS
    channel.when("release", over.set)
    ends = False
    while not ends:
        # Asked before the look: what was saved until then is seen.
        left = _left(remote, number) if remote else _left_here(directory, number)
        ends = left is not None or over.is_set()
        newest = max((manifest.step for _, manifest in store.list()), default=-1)
        stored = store.newest() if newest > last or ends else None
        place = stored.meta.get("place") if stored else None
        if left is not None:
            yield _steps_of(left.arrays, newest), left.arrays
        elif stored is not None and place and place[0] == number and stored.step > last:
            last = stored.step
            yield last, stored.arrays
        elif place and place[0] > number:
            return  # the chief is further on, and this training's end is not on the disk
        if not ends:
            over.wait(wait)


def _left_here(directory: str, number: int) -> Snapshot | None:
    return snapshot.read_file(snapshot.path_of_call(Path(directory, snapshot.CALLS), number))


def _left(remote: RemoteDirectory, number: int) -> Snapshot | None:
    """What the training has left, read through a copy."""
    with scratch.within(settings().state_path) as folder:
        path = snapshot.path_of_call(folder, number)
        if remote.has_call(path.name) and remote.fetch_call(path.name, path):
            return snapshot.read_file(path)
    return None


def _steps_of(arrays: Mapping[str, NDArray], otherwise: int) -> int:
    """Returns the iterations of the (first) optimizer."""
    names = (name for name in arrays if name.startswith("optimizer/") and "iteration" in name)
    name = next(names, None)
    return max(otherwise, 0) if name is None else int(arrays[name])
