"""Tells which call of the script that needs every worker is running, and in which line.

What waits there in vain fails by an error of TensorFlow's or of the host collective's; the script
gets to see one that names the call.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

import keras
import tensorflow as tf

from tfrun.collective import stamps
from tfrun.engine import whereabouts
from tfrun.job import unmatched_call
from tfrun.job.errors import TfrunError

_LIBRARIES = KERAS, TENSORFLOW, TFRUN = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(Path(module.__file__ or "").parent for module in (keras, tf)),
        Path(__file__).parents[1],
    )
)
_PYTHON = f"{Path(os.__file__).parent}{os.sep}"
_standing: list[str] = []  # where the calls are that run: their replicas may have their own threads
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@contextlib.contextmanager
def calling(call: str) -> Iterator[None]:
    """While it lasts the script is in a call that needs every worker.

    Args:
      call: one of `absent.CALLS`.

    Raises:
      TfrunError: TFRUN-406, instead of the error that a worker gets which waits in vain.
    """
    frame = _of_script(sys._getframe(1))
    number, line = unmatched_call.CALLS.index(call), frame.f_lineno if frame else 0
    # A step that one calls in `strategy.run`, another one may call in a `tf.function`.
    own = None if call == "strategy.run" else number
    before = stamps.stand(stamps.ScriptPlace())
    stamps.stand(
        stamps.ScriptPlace(phase=before.phase if own is None else own, call=number, line=line)
    )
    _standing.append(_named(frame, line))
    try:
        yield
    except Exception as error:
        reason = None if isinstance(error, TfrunError) else unmatched_call.reason_in(str(error))
        if reason is None:
            raise
        raise unmatched_call.error(call, _whole(reason, number, line), _standing[-1]) from None
    finally:
        _standing.pop()
        stamps.stand(before)


def explained(error: BaseException) -> BaseException:
    """What a person gets to see of an error that has ended the script: itself, or a clear one."""
    reason = None if isinstance(error, TfrunError) else unmatched_call.reason_in(str(error))
    if reason is None:
        return error
    place = where(error)
    line = place.rpartition(":")[2]
    reason = _whole(reason, 0, int(line) if line.isdecimal() else 0)
    clear = unmatched_call.error(unmatched_call.CALLS[0], reason, place)
    clear.__cause__ = error
    return clear


def _whole(reason: str, call: int, line: int) -> str:
    """A reason that names all workers, where TensorFlow has named none."""
    if reason != unmatched_call.UNNAMED:
        return reason
    return whereabouts.of_all(unmatched_call.stands(call, line)) or reason


def where(error: BaseException) -> str:
    """File and line of the script's call that has raised an error; "" when it is none of its."""
    frame, line = None, 0
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if is_script(trace.tb_frame.f_code.co_filename):
            frame, line = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    return _named(frame, line)


def is_of_script(frame: FrameType) -> bool:
    """True for a call of the script's own code, not of a library's that we know."""
    return is_script(frame.f_code.co_filename)


def here() -> str:
    """File and line of the script's innermost call; "" when it is none of its."""
    frame = _of_script(sys._getframe(1))
    return _named(frame, frame.f_lineno) if frame else _standing[-1] if _standing else ""


def _of_script(frame: FrameType | None) -> FrameType | None:
    """The innermost call of the script's own code."""
    while frame is not None and not is_script(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@functools.lru_cache(maxsize=1024)
def is_script(file: str) -> bool:
    """Whether a file has code of the script's own, not of a library's that we know."""
    if file.startswith(("<", *_LIBRARIES)) or "__autograph_generated_file" in file:
        return False
    return not file.startswith(_PYTHON) or any(part in file for part in _INSTALLED)


def _named(frame: FrameType | None, line: int) -> str:
    if frame is None:
        return ""
    return f"{_shown(frame.f_code.co_filename)}:{line}"


@functools.lru_cache(maxsize=64)
def _shown(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (OSError, ValueError):  # elsewhere, or the working directory has been removed
        return Path(file).name
