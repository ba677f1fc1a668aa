"""Tells what a loop of the script's own may have computed from one replica's piece, and refuses it.

Nobody could compute that for the other replicas of a worker. It has no mark but its age: what has
come up while the loop was in a step may be made of the step's piece, and what is older is not.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from tfrun.engine.script_lines import script_line
from tfrun.job.errors import TfrunError
from tfrun.job.world import take_one_for_good

# From where to where some loop was in steps, in TensorFlow's count of all tensors; None: it is.
_spans: list[list[int | None]] = []
_one_each = ""  # why the script's loop cannot take turns
# Iterations over distributed data that have begun and are not over: a successor has none of them.
_readings: weakref.WeakSet[Any] = weakref.WeakSet()
_updates_alone = False  # a replica was about to


def steps_begin() -> None:
    """Some loop is in steps from now on, and none was before."""
    steps_end()  # of one that has gone without a word
    _spans.append([ops.uid(), None])


def steps_end() -> None:
    """None is in a step any more."""
    if _spans and _spans[-1][1] is None:
        _spans[-1][1] = ops.uid()


def came_up_in_steps(tensor: Any) -> bool:
    """Whether a tensor was made while some loop was in a step: its pieces may be in it."""
    return any(
        begin < tensor._id and (end is None or tensor._id < end)  # type: ignore[operator]
        for begin, end in _spans
    )


def may_be_computed(leaf: Any) -> str:
    """What a leaf is that may come from a loop's piece, past any call; "" for what does not."""
    if is_tensor(leaf):
        return "a tensor" if came_up_in_steps(leaf) else ""
    return "an array" if isinstance(leaf, np.ndarray) and leaf.ndim > 0 else ""


def note_one_each(why: str) -> bool:
    """Notes that the script's loop needs one replica on each worker; whether that is for good."""
    global _one_each
    _one_each = _one_each or why
    return take_one_for_good(why)


def note_distributed(why: str = "the script has distributed data itself") -> None:
    """Notes why nobody but this worker could go on with data that the script has distributed."""
    global _one_each
    _one_each = _one_each or why


def reading_begins(iteration: Any) -> None:
    """The script is in the midst of distributed data, until that ends or nobody holds it."""
    _readings.add(iteration)


def reading_ends(iteration: Any) -> None:
    _readings.discard(iteration)


def why_one_each(besides: Collection[Any] = ()) -> str:
    """Why the script's loop needs one replica on each worker; "" where it does not.

    Args:
      besides: iterations that can be begun again.
    """
    is_reading = any(one not in besides for one in _readings)
    return _one_each or ("the script is in the midst of distributed data" if is_reading else "")


def note_update_alone() -> None:
    """A function that updates is called with no part of a step's batch, where a step runs."""
    global _updates_alone
    _updates_alone = True


def update_alone() -> TfrunError | None:
    """The error of such a call, once."""
    global _updates_alone
    noted, _updates_alone = _updates_alone, False
    return (
        TfrunError(
            "TFRUN-518",
            "a function that updates weights is given no part of a step's batch, so nobody can "
            "call it for the other replicas of this worker",
            where=script_line(),
            expected="a batch of TrainState.steps, or of data that the strategy has distributed",
            fix="Call it with that batch; or leave out --replicas",
        )
        if noted
        else None
    )


def computed_outside(what: str, whom: str) -> TfrunError:
    return _of_one_piece(
        f"{whom} is given {what}",
        expected="what a step computes from its batch in one tf.function",
        fix="Compute it in the tf.function that calls strategy.run; pass what does not depend on "
        "the batch as a Python number, or make it before the loop; or leave out --replicas",
    )


def given_to_metric(what: str) -> TfrunError:
    return _of_one_piece(
        f"a metric is given {what}",
        expected="what a step has returned, or strategy.reduce",
        fix="Update the metric in the tf.function that calls strategy.run, or with what that "
        "returns, as it is; or leave out --replicas",
    )


def check_alike(leaf: Any, columns: Iterable[Sequence[Any]]) -> None:
    """Refuses what a metric is given that other replicas may have something else for.

    Args:
      leaf: what it is given.
      columns: what each replica here has of all that the step has given or made.

    Raises:
      TfrunError: TFRUN-518.
    """
    if is_tensor(leaf) and came_up_in_steps(leaf):
        raise given_to_metric("a tensor")
    if isinstance(leaf, np.ndarray) and leaf.ndim > 0:
        raise given_to_metric("an array")
    if is_number(leaf) and any(_differs(float(leaf), parts) for parts in columns):
        raise given_to_metric("a number")


def _differs(number: float, parts: Sequence[Any]) -> bool:
    """Whether it is what the first replica has, and another one has something else."""
    if not is_tensor(parts[0]) or parts[0].shape.rank != 0 or not parts[0].dtype.is_floating:
        return False
    first, *others = (float(part) for part in parts)
    return number == first and any(other != first for other in others)


def _of_one_piece(what: str, *, expected: str, fix: str) -> TfrunError:
    text = f"{what} that the loop has made of one replica's part of the batch, or may have"
    return TfrunError("TFRUN-518", text, where=script_line(), expected=expected, fix=fix)


def is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor) and not isinstance(leaf, tf.Variable)


def is_number(leaf: Any) -> bool:
    return isinstance(leaf, float | np.floating) or (
        isinstance(leaf, np.ndarray) and leaf.ndim == 0 and leaf.dtype.kind == "f"
    )
