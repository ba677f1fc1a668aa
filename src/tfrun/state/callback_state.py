"""Saves and restores what callbacks remember.

A callback with `get_state()` and `set_state(state)` says itself what it remembers. Of any other
one it is the attributes that hold plain data (plain_data.py). That is all that Keras's own
callbacks decide by: also functions, for `min_delta` has its sign with a `monitor_op`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
from numpy.typing import NDArray

from tfrun.engine import script_state
from tfrun.engine.script_state import PREFIX
from tfrun.job.world import world
from tfrun.state import plain_data

_NOT_STATE = frozenset({"params", "_model", "model", "validation_data", "verbose"})
# What these remember belongs to their open files and to the terminal.
_STATELESS = (keras.callbacks.ProgbarLogger, keras.callbacks.CSVLogger)
# As `variables` names them, with the number of the callback.
_HELD = re.compile(re.escape(PREFIX) + r"\w+\.\w+/(\d+)\.\d+$")


class StandIn(keras.callbacks.Callback):
    """A callback that runs another one, `callback`, which is what remembers."""

    callback: Any


def inner(callback: Any) -> Any:
    """Returns the callback that a stand-in runs; any other one as it is."""
    return inner(callback.callback) if isinstance(callback, StandIn) else callback


def acts_before_steps(callback: Any) -> bool:
    """Whether a callback of the script's own sees each step begin, and may draw or count there."""
    callback = inner(callback)
    found = (getattr(callback, name) for name in ("on_train_batch_begin", "on_batch_begin"))
    return any(not getattr(one, "__module__", "").startswith(("keras.", "tfrun.")) for one in found)


def variables(callbacks: Iterable[Any], besides: Iterable[Any]) -> dict[str, Any]:
    """Keras's variables that callbacks hold, by a name for each: of a metric, an averaged model.

    Args:
      callbacks: without those that say themselves what they remember.
      besides: variables that belong to a training anyway.
    """
    known = {id(variable) for variable in besides}
    found: dict[str, Any] = {}
    for number, callback in enumerate(map(inner, callbacks)):
        if isinstance(callback, _STATELESS) or _says_itself(callback):
            continue
        for key, value in vars(callback).items():
            held = () if key in _NOT_STATE else _variables_of(value)
            for i, variable in enumerate(held):
                if id(variable) not in known and script_state.is_kept(variable):
                    known.add(id(variable))
                    name = f"{PREFIX}{type(callback).__name__}.{key}/{number}.{i}"
                    found[name] = variable
    return found


def begin_those_without(
    there: Container[str],
    kept: Iterable[str],
    callbacks: Sequence[Any],
    begin: Callable[[Any], None],
) -> None:
    """Has callbacks begin that make what they hold as a training begins, for one that is done.

    Args:
      there: the names of variables that are there.
      kept: the names of those that were kept.
      callbacks: of the training.
      begin: shows one of them the training's begin.
    """
    missing = filter(None, (_HELD.match(name) for name in kept if name not in there))
    for number in sorted({int(name[1]) for name in missing}):
        if number < len(callbacks):
            begin(inner(callbacks[number]))


def _variables_of(value: Any) -> list[Any]:
    if isinstance(value, keras.Variable):
        return [value]
    if isinstance(value, keras.Layer | keras.Metric | keras.Optimizer):
        return list(value.variables)
    items = value.values() if isinstance(value, dict) else value
    if type(value) not in (list, tuple, dict):
        return []
    return [variable for item in items for variable in _variables_of(item)]


def take(callbacks: Iterable[Any], arrays: dict[str, NDArray]) -> list[Any]:
    """Returns what each callback remembers, as JSON; arrays go into `arrays`."""
    return [
        _take(inner(callback), arrays, f"callbacks/{i}") for i, callback in enumerate(callbacks)
    ]


def put_back(callbacks: Sequence[Any], states: Sequence[Any], arrays: dict[str, NDArray]) -> None:
    """Gives each callback what its namesake remembered, in the same `fit` of the earlier run."""
    for callback, state in zip(map(inner, callbacks), states, strict=False):
        if state["class"] != type(callback).__name__:
            continue
        if "state" in state:
            callback.set_state(plain_data.decode(state["state"], arrays))
        for name, value in state["attributes"].items():
            with contextlib.suppress(LookupError):  # a function of code that was another then
                setattr(callback, name, plain_data.decode(value, arrays))


def _take(callback: Any, arrays: dict[str, NDArray], name: str) -> dict[str, Any]:
    taken: dict[str, Any] = {"class": type(callback).__name__, "attributes": {}}
    if isinstance(callback, _STATELESS):
        return taken
    if _says_itself(callback):
        taken["state"] = plain_data.encode(callback.get_state(), arrays, name)
        return taken
    for key, value in vars(callback).items():
        if key in _NOT_STATE:
            continue
        mine: dict[str, NDArray] = {}
        try:
            taken["attributes"][key] = plain_data.encode(value, mine, f"{name}/{key}")
        except TypeError:
            continue  # a model, a function without a name, an open file
        arrays.update(mine)
    return taken


def _says_itself(callback: Any) -> bool:
    return callable(getattr(callback, "get_state", None)) and hasattr(callback, "set_state")


def append_to_logs(callbacks: Iterable[Any], epoch: int) -> None:
    """Has Keras's CSV files go on where they were, without the epochs that come again."""
    for callback in map(inner, callbacks):
        if isinstance(callback, keras.callbacks.CSVLogger):
            callback.append = True
            path = Path(callback.filename)
            if world().is_chief and path.exists():
                header, *rows = path.read_text().splitlines(keepends=True) or [""]
                kept = [row for row in rows if _epoch_of(row, callback.sep) < epoch]
                path.write_text("".join([header, *kept]))


def _epoch_of(row: str, separator: str) -> int:
    first = row.partition(separator)[0].strip()
    return int(first) if first.isdecimal() else -1
