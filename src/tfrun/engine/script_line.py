"""Which line of the script is being executed, for messages: `train.py:31`."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from tensorflow.python.util import tf_stack

_LIBRARIES = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")),
)


def script_line() -> str:
    """Returns file and line of the innermost call that is neither a library's nor Python's own.

    TensorFlow's stack, unlike Python's, has the script's lines also where TensorFlow runs code that
    it has made from the script. Empty when there is none.
    """
    for frame in reversed(tf_stack.extract_stack()):
        if is_scripts(frame.filename):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""


def is_scripts(filename: str) -> bool:
    """Whether a file of Python code is a script's own, or made from one by a person."""
    if filename.startswith(("<", *_LIBRARIES)) or "autograph_generated" in filename:
        return False
    return not {"site-packages", "dist-packages"} & set(Path(filename).parts)
