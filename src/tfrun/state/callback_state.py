"""What is special to callbacks where a training goes on: their variables, their files.

What they remember else is in callback_memory.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras

from tfrun.engine import script_state
from tfrun.engine.script_state import PREFIX
from tfrun.job.world import world

NOT_STATE = frozenset({"params", "_model", "model", "validation_data", "verbose"})
# What these remember belongs to their open files and to the terminal.
STATELESS = (keras.callbacks.ProgbarLogger, keras.callbacks.CSVLogger)
# As `variables` names them, with the number of the callback.
_HELD = re.compile(re.escape(PREFIX) + r"\w+\.\w+/(\d+)\.\d+$")


class StandIn(keras.callbacks.Callback):
    """A callback that runs another one, `callback`, which is what remembers."""

    callback: Any

    @property
    def is_elsewhere(self) -> bool:
        """Whether the other one runs on another worker alone, and remembers there."""
        return False


def inner(callback: Any) -> Any:
    """Returns the callback that a stand-in runs; any other one as it is."""
    return inner(callback.callback) if isinstance(callback, StandIn) else callback


def is_elsewhere(callback: Any) -> bool:
    """Whether what a callback remembers is on another worker alone."""
    return isinstance(callback, StandIn) and callback.is_elsewhere


class One(NamedTuple):
    """A callback that remembers, and whether it does so on another worker alone."""

    callback: Any
    is_elsewhere: bool


def every(callbacks: Iterable[Any]) -> list[One]:
    """All that remember: the callbacks of a training, and after them those that they hold."""
    found = [One(inner(callback), is_elsewhere(callback)) for callback in callbacks]
    known = {id(one.callback) for one in found}
    for holder in found:  # which grows
        if says_itself(holder.callback):
            continue
        for value in list(vars(holder.callback).values()):
            for callback in _callbacks_in(value):
                one = inner(callback)
                if id(one) not in known:
                    known.add(id(one))
                    found.append(One(one, holder.is_elsewhere or is_elsewhere(callback)))
    return found


def _callbacks_in(value: Any) -> Iterable[Any]:
    kind = type(value)
    held = value.values() if kind is dict else value if kind in (list, tuple) else (value,)
    if not isinstance(next(iter(held), None), keras.callbacks.Callback):
        return ()
    return [one for one in held if isinstance(one, keras.callbacks.Callback)]


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
    for number, (callback, elsewhere) in enumerate(every(callbacks)):
        if isinstance(callback, STATELESS) or says_itself(callback) or elsewhere:
            continue
        for key, value in vars(callback).items():
            held = () if key in NOT_STATE else _variables_of(value)
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
    ones = every(callbacks)
    for number in sorted({int(name[1]) for name in missing}):
        if number < len(ones):
            begin(ones[number].callback)


def _variables_of(value: Any) -> list[Any]:
    if isinstance(value, keras.Variable):
        return [value]
    if isinstance(value, keras.Layer | keras.Metric | keras.Optimizer):
        return list(value.variables)
    items = value.values() if isinstance(value, dict) else value
    if type(value) not in (list, tuple, dict):
        return []
    return [variable for item in items for variable in _variables_of(item)]


def says_itself(callback: Any) -> bool:
    """Whether a callback has `get_state` and `set_state`, and so decides what is kept."""
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
