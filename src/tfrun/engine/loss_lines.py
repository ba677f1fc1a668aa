"""Finds the line of the script that computed a tensor."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrun.engine.loss_reader import is_eager


def line_of(tensor: Any) -> str:
    """Returns "FILE:LINE", of the script's innermost line that led to `tensor`.

    Of a tensor that has been computed eagerly it is the line that asks now.
    """
    frames: Iterable[Any] = traceback.extract_stack()
    if not is_eager(tensor) and getattr(tensor.op, "traceback", None):
        frames = tensor.op.traceback
    own = [frame for frame in frames if not _is_library(frame.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "an unknown place"


def _is_library(file: str) -> bool:
    return file.startswith(_libraries()) or file.startswith("<") or "importlib" in file


@functools.cache
def _libraries() -> tuple[str, ...]:
    here = Path(__file__).parents[1]
    return (*(str(Path(str(m.__file__)).parent) for m in (keras, tf)), str(here))
