"""Finds the script's own lines among those of libraries, for messages: `train.py:31`."""

from __future__ import annotations

import functools
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.util import tf_stack

LIBRARIES = KERAS, TENSORFLOW, TFRUN = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(Path(module.__file__ or "").parent for module in (keras, tf)),
        Path(__file__).parents[1],
    )
)
_PYTHON = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
# What people type, under names that are no files'.
_TYPED = ("<ipython-input-", "<python-input-", "<stdin>")

_MADE = "__autograph_generated_file"  # what TensorFlow makes from the script's code
AUTOGRAPH = f"{TENSORFLOW}python{os.sep}autograph{os.sep}"
_PARTS = ("if_body", "else_body", "loop_body", "loop_test")  # of the script's functions
_NEAREST = 100  # operations that are looked at for a line of the script's


@functools.lru_cache(maxsize=1024)
def is_script(file: str) -> bool:
    """Whether a file has code of the script's own, not of a library's that we know."""
    if file.startswith(_TYPED):
        return True
    if file.startswith(("<", *LIBRARIES)) or _MADE in file:
        return False
    return not file.startswith(_PYTHON) or any(part in file for part in _INSTALLED)


def is_made_of_script(frame: FrameType | None) -> bool:
    """Whether code that TensorFlow has made from the script's, where it traces, has called this."""
    while frame is not None and frame.f_code.co_filename.startswith(AUTOGRAPH):
        frame = frame.f_back
    return frame is not None and _MADE in frame.f_code.co_filename


def script_line() -> str:
    """Returns file and line of the script's innermost call; "" when there is none.

    TensorFlow's stack, unlike Python's, has the script's own lines also where TensorFlow runs code
    that it has made from the script; but not on the thread of a replica (mirrored_run.py). There
    the name of the script's function is known: `train_step`.
    """
    frames = list(tf_stack.extract_stack())
    if (frame := _innermost(frames)) is not None:
        return f"{Path(frame.filename).name}:{frame.lineno}"
    names = (f.name for f in reversed(frames) if _MADE in f.filename)
    made = (name for name in names if name.rstrip("_0123456789") not in _PARTS)
    return next((f"`{name}`" for name in made), "")


def at_script_line() -> str:
    """Returns `script_line` in parentheses, for the end of a clause; "" when there is none."""
    line = script_line()
    return f" ({line})" if line else ""


def line_of(tensor: Any) -> str:
    """Returns path and line of the script's innermost call that led to `tensor`.

    Where Keras computes it on a thread of its own, from what the script's code (a regularizer) has
    computed, it is the line of that. Of a tensor that has been computed eagerly it is the line that
    asks now.
    """
    if tf.executing_eagerly():
        stacks: Iterable[Any] = [tf_stack.extract_stack()]
    else:
        stacks = (op.traceback or tf_stack.extract_stack() for op in _led_to(tensor.op))
    frame = next(filter(None, map(_innermost, stacks)), None)
    return f"{frame.filename}:{frame.lineno}" if frame else "an unknown place"


def _led_to(op: Any) -> Iterator[Any]:
    """An operation and those that its inputs come from, the nearest first; not a whole model's."""
    coming, seen = deque([op]), {op.name}
    while coming and len(seen) < _NEAREST:
        one = coming.popleft()
        yield one
        makers = {tensor.op.name: tensor.op for tensor in one.inputs}
        coming += (maker for name, maker in makers.items() if name not in seen)
        seen |= makers.keys()


def _innermost(frames: Iterable[Any]) -> Any | None:
    return next((f for f in reversed(list(frames)) if is_script(f.filename)), None)


def keras_asks() -> bool:
    """Whether Keras's own code, other than its variables', has called what calls this."""
    passed = (TENSORFLOW, TFRUN, f"{KERAS}src{os.sep}backend{os.sep}")
    return asked_by(sys._getframe(1), KERAS, past=passed)


def asked_by(
    frame: FrameType | None,
    places: str | tuple[str, ...],
    *,
    past: str | tuple[str, ...] = TENSORFLOW,
) -> bool:
    """Whether code of some folders asks for what is done now.

    Args:
      frame: the call to begin with, and go outwards from.
      places: the folders.
      past: the folders whose code does it for who asks.
    """
    while frame is not None and frame.f_code.co_filename.startswith(past):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(places)


def script_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost call of the script's own code, from this one outwards."""
    while frame is not None and not is_script(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def where(error: BaseException) -> str:
    """File and line of the script's call that has raised an error; "" when it is none of its."""
    frame, line = None, 0
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if is_script(trace.tb_frame.f_code.co_filename):
            frame, line = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    return named(frame, line)


def named(frame: FrameType | None, line: int) -> str:
    """A line of a call's file, as a person writes it; "" for no call."""
    return "" if frame is None else f"{_shown(frame.f_code.co_filename)}:{line}"


@functools.lru_cache(maxsize=64)
def _shown(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (OSError, ValueError):  # elsewhere, or the working directory has been removed
        return Path(file).name
