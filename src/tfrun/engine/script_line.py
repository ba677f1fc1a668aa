"""Finds the line of the script that is being traced or executed, for messages: `train.py:31`."""

from __future__ import annotations

from pathlib import Path

from tensorflow.python.util import tf_stack

from tfrun.engine import script_place


def script_line() -> str:
    """Returns file and line of the script's innermost call; "" when there is none.

    TensorFlow's stack, unlike Python's, has the script's own lines also where TensorFlow runs code
    that it has made from the script.
    """
    for frame in reversed(tf_stack.extract_stack()):
        if script_place.is_script(frame.filename) and "autograph_generated" not in frame.filename:
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""
