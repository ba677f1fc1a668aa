"""What a loop's script assigns between two calls of a step: `learning_rate.assign(...)`.

Where a worker dies within the step, who stays makes its calls again, from the first one on; the
loop's body does not notice, and assigns nothing again. So it is assigned again in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from tfrun.engine.loop_calls import open_steps

T = TypeVar("T")


def noted(assign: Callable[[], T]) -> T:
    """Has the script assign a variable."""
    result = assign()
    note(assign)
    return result


def note(assign: Callable[[], object]) -> None:
    """The script has assigned a variable, as `assign` does again."""
    if tf.executing_eagerly():
        for step in open_steps.values():
            step.note_assigned(assign)
