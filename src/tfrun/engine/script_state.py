"""What a script keeps outside of its models: seed generators, and variables of its own.

A step may draw from a `keras.random.SeedGenerator` or a `tf.random.Generator` that no model holds,
and count in a `tf.Variable`; Keras does not take one for a model's even where it is an attribute.
All that belongs to the state of a training. A script that runs again makes them at the same lines,
in the same order: that tells which is which.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values

from tfrun.data.order.repeatable import is_of_data
from tfrun.engine.script_lines import (
    AUTOGRAPH,
    TFRUN,
    is_made_of_script,
    is_script,
    script_frame,
    script_line,
)

PREFIX = "script/"  # so begin their names in a snapshot
# Of TensorFlow's own: what is larger, and has never been assigned, is data.
_SMALL = 1 << 20
_ASSIGNED = "_tfrun_assigned"
_IN_STEP = "_tfrun_assigned_in_step"

calls_python = False  # a step calls Python functions of the script's
_first_steps = 0  # of trainings, that have begun
drawing: dict[str, None] = {}  # lines of steps that draw by ops with a state of their own
tables: dict[str, None] = {}  # and of those that change lookup tables
made: list[Made] = []  # in the order in which the script has made them
_at_line: Counter[str] = Counter()


@dataclass(frozen=True)
class Made:
    """A variable that the script has made: the name that it is known by, and itself while it is."""

    name: str
    variable: weakref.ref[Any]


@dataclass(frozen=True)
class Plain:
    """A variable of TensorFlow's, with what is asked of one of Keras's."""

    path: str
    _value: Any

    @property
    def value(self) -> Any:
        return self._value

    @property
    def shape(self) -> Any:
        return self._value.shape


def note_seeds(generator: Any) -> None:
    """Notes a seed generator of Keras's, or a random generator of TensorFlow's, that was made.

    Called by what stands in the place of its `__init__`.
    """
    if not sys._getframe(2).f_code.co_filename.startswith(TFRUN):
        _note(getattr(generator, "state", None))


def note_variable(variable: Any) -> None:
    """Notes a variable, if the script's own line has made it. Called like `note_seeds`."""
    frame = sys._getframe(2)
    file = frame.f_code.co_filename
    if is_script(file):
        _note(variable)
    elif file.startswith(AUTOGRAPH) and is_made_of_script(frame):  # each assignment makes some
        _note_at(script_line(), variable)


def note_assigned(variable: Any) -> None:
    """Notes that a variable of TensorFlow's does not keep the value that it was made with."""
    if not hasattr(variable, _ASSIGNED):
        setattr(variable, _ASSIGNED, True)
    if not tf.executing_eagerly():
        setattr(variable, _IN_STEP, _first_steps)


def is_made(variable: Any) -> bool:
    """Whether the script has made this variable, of TensorFlow's."""
    return any(one.variable() is variable for one in made)


def first_step_begins() -> None:
    """A training's first step in this process begins: what is traced from now on is its."""
    global _first_steps
    _first_steps += 1


def is_assigned_in_step(variable: Any) -> bool:
    """Whether what was traced since the newest first step began assigns TensorFlow's variable."""
    return getattr(variable, _IN_STEP, -1) == _first_steps


def note_stateful_op() -> None:
    """Notes that a step draws by an op that has its state in the process, where nobody reads it."""
    drawing[script_line()] = None


def note_table() -> None:
    """Notes that a step changes a lookup table, which is in this process and nowhere else."""
    tables[script_line()] = None


def note_python() -> None:
    """Notes that a step calls a Python function of the script's."""
    global calls_python
    calls_python = True


def assigned_in_steps() -> dict[str, Any]:
    """Of TensorFlow's variables that the script has made those that its steps assign, by name."""
    living = ((one.name, one.variable()) for one in made)
    own = {n: v for n, v in living if isinstance(v, tf.Variable)}
    return {
        n: v for n, v in own.items() if any(map(is_assigned_in_step, getattr(v, "_values", (v,))))
    }


def found(besides: Iterable[Any], first: int | None = None) -> dict[str, Any]:
    """What there is, by a name for each that it has in every run of the script.

    Args:
      besides: Keras's variables that belong to a model, an optimizer or a metric.
      first: only of so many that the script made first; None for all.
    """
    known = {id(variable) for variable in besides}
    living = ((one.name, one.variable()) for one in made[:first])
    every = {n: v for n, v in living if v is not None and id(v) not in known}
    kept = {}
    for name, variable in every.items():
        is_plain = isinstance(variable, tf.Variable)
        value = variable if is_plain else variable._value
        if value is not None and _changes(value, is_plain=is_plain):
            kept[name] = Plain(name, value) if is_plain else variable
    return kept


def is_kept(variable: Any) -> bool:
    """Whether one of Keras's that no model of a training has belongs to its state.

    A large one only if somebody has assigned it; and none of which each worker has a part.
    """
    value = variable._value
    if value is None or isinstance(value, values.SyncOnReadVariable):
        return False
    return _changes(value, is_plain=True)


def _changes(value: Any, *, is_plain: bool) -> bool:
    """Whether a training may change it, and nobody else takes it to where it was."""
    copies = getattr(value, "_values", (value,))
    if any(map(is_of_data, copies)) or value.dtype == tf.string:
        return False
    size = value.shape.num_elements()
    if size is None:  # of a shape that changes
        return False
    is_small = size * value.dtype.size <= _SMALL
    return not is_plain or is_small or any(hasattr(copy, _ASSIGNED) for copy in copies)


def _note(variable: Any) -> None:
    frame = script_frame(sys._getframe(1))
    if variable is None or frame is None:
        return
    _note_at(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}", variable)


def _note_at(line: str, variable: Any) -> None:
    _at_line[line] += 1
    made.append(Made(f"{PREFIX}{line}/{_at_line[line]}", weakref.ref(variable)))
