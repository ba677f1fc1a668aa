"""Python functions of the script's that a step calls: `tf.numpy_function` and `tf.py_function`.

Each call is a replica's. TensorFlow runs it when its inputs are there, which may be in another
replica's turn, so it is told whose it is.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrun.data import global_random
from tfrun.data.global_random import Drawn
from tfrun.engine import (
    python_counts,
    replica,
    same_draws,
    script_generators,
    script_state,
)
from tfrun.engine.script_lines import KERAS, TENSORFLOW, TFRUN, asked_by, at_script_line


class _Here(threading.local):
    """The call that runs in this thread, or ran last.

    Attributes:
      place: of the replica; None of a call that is no replica's.
    """

    place: int | None = None


_here = _Here()


def watch_python(original):
    """What Python draws that a step calls is the same on each replica, and in a step made again.

    The first is told, for the second the generators go back.
    """

    @functools.wraps(original)
    def _internal_py_func(func, inp, Tout, *args, use_eager_py_func=False, **kwargs):
        run, turns = replica.current(), None
        # A gradient is asked for by who trains.
        ours = asked_by(sys._getframe(1), TFRUN) and not kwargs.get("is_grad_func")
        if run is not None and not ours:
            script_state.note_python()
            for name, generator in script_generators.of_function(func).items():
                global_random.know(f"step/{name}", generator)
            if run.tells:
                where = at_script_line()
                python_counts.tell(func, where)
                func = same_draws.watched(func, where)
            func = Drawn.not_by_data(object())(func)
            if not tf.executing_eagerly():
                turns = replica.turns_of(run.context.strategy)
        elif not (
            run is not None
            or tf.executing_eagerly()
            # For data that Python makes tfrun asks Keras for a pipeline.
            or asked_by(sys._getframe(1), TFRUN, past=(TENSORFLOW, KERAS))
        ):
            func = Drawn.by_pipeline()(func)  # or what `predict` runs, or the script itself
        if turns is not None:
            func, place = _called_as(func, turns), turns.place()
            # The gradient for it is a zero, which TensorFlow can make of a float only.
            inp = [tf.cast(place, tf.float32) if use_eager_py_func else place, *inp]
        elif use_eager_py_func:
            func = _called_outside(func)
        return original(func, inp, Tout, *args, use_eager_py_func=use_eager_py_func, **kwargs)

    return _internal_py_func


def _called_as(func: Callable[..., Any], turns: Any) -> Callable[..., Any]:
    """`func`, called by the replica whose place among those of the worker comes first."""

    @functools.wraps(func)
    def call(place: Any, *args: Any) -> Any:
        _here.place = int(place)
        with turns.python_of(_here.place):
            return func(*args)

    return call


def _called_outside(func: Callable[..., Any]) -> Callable[..., Any]:
    """`func`, called by no replica."""

    @functools.wraps(func)
    def call(*args: Any) -> Any:
        _here.place = None
        return func(*args)

    return call


class _Tapes(dict[Any, Any]):
    """What `tf.py_function` keeps for its gradient, of each replica that takes turns.

    TensorFlow has one place for all calls of a function. It looks there in the thread that has
    called the function, just after and just before it.
    """

    def __setitem__(self, token: Any, tape: Any) -> None:
        super().__setitem__((token, _here.place), tape)

    def pop(self, token: Any, *default: Any) -> Any:
        return super().pop((token, _here.place), *default)


def keep_tapes_apart(original):
    """Each replica's backward pass has the tape of its own forward pass."""
    return _Tapes({(token, None): tape for token, tape in original.items()})
