"""Whose call it is: the script's, a library's on its behalf, or of what knows of workers."""

from __future__ import annotations

import enum
import functools
import importlib.util
import os
from pathlib import Path
from types import FrameType

_PYTHON = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TFRUN = f"{Path(__file__).parents[2]}{os.sep}"
# What Keras's utilities write (`get_file`, `save_img`, `plot_model`) they write for the script;
# what else it saves is the chief's already.
_FOR_THE_SCRIPT = f"{os.sep}src{os.sep}utils{os.sep}"


class Caller(enum.Enum):
    """The innermost code that is not Python's own."""

    SCRIPT = enum.auto()
    LIBRARY = enum.auto()
    OURS = enum.auto()  # tfrun, TensorFlow, Keras


def caller(frame: FrameType | None) -> Caller:
    """Who calls in this frame; the script, where nobody is found."""
    while frame is not None:
        if (found := of_file(frame.f_code.co_filename)) is not None:
            return found
        frame = frame.f_back
    return Caller.SCRIPT


@functools.lru_cache(maxsize=4096)
def of_file(file: str) -> Caller | None:
    """Whose code a file has; None for Python's own, which somebody else has called."""
    if file.startswith(_TFRUN):
        return Caller.OURS
    for package in _knowing():
        if file.startswith(package):
            inner = file[len(package) - 1 :]
            return Caller.LIBRARY if inner.startswith(_FOR_THE_SCRIPT) else Caller.OURS
    if any(part in file for part in _INSTALLED):
        return Caller.LIBRARY
    return None if file.startswith((_PYTHON, "<frozen ")) else Caller.SCRIPT


@functools.cache
def _knowing() -> tuple[str, ...]:
    specs = map(importlib.util.find_spec, ("keras", "tensorflow"))
    found = (spec.origin for spec in specs if spec is not None and spec.origin)
    return tuple(f"{Path(origin).parent}{os.sep}" for origin in found)
