"""Runs a program as `python script.py …` or `python -m module …` would, in this process."""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import runpy
import sys
import traceback
import types
from typing import Any

from tfrun.job.errors import TfrunError
from tfrun.job.reports import Error
from tfrun.job.spec import Program

MESSAGE = 4096  # characters
PARTS, PART = 5, 500  # of notes and the like: how many, and characters of each

# Frames of these files lead to the script and mean nothing to its author.
own_files = {
    __file__,
    os.path.join(os.path.dirname(__file__), "bootstrap.py"),  # noqa: PTH118, PTH120
    runpy.__file__,
    "<frozen runpy>",
}


def run(program: Program) -> None:
    """Runs the program as `__main__`; whatever it raises comes through."""
    sys.argv = [program.target, *program.args]
    if program.is_module:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        runpy.run_module(program.target, run_name="__main__", alter_sys=True)
    else:
        _run_file(program.target)


def _run_file(path: str) -> None:
    """Like the interpreter: a real `__main__` module, so that pickling finds its classes."""
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    path = os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - as the interpreter does
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __spec__=None,
        __cached__=None,
        __package__=None,
    )
    sys.modules["__main__"] = main
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def exit_code(error: BaseException | None) -> int:
    """Returns the exit code that the interpreter would give, and says what it would say."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    trim(error)
    sys.excepthook(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def describe(error: BaseException) -> Error:
    """Returns what is known of an exception, of a bounded size."""
    if isinstance(error, SystemExit):
        text = str(error.code)
        return Error(type="SystemExit", message=text, traceback=f"SystemExit: {text}")
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    message = _text(error)
    if len(message) > MESSAGE:  # TensorFlow's say at their end what has happened
        message = f"{message[: MESSAGE // 2 - 3]}\n…\n{message[-MESSAGE // 2 :]}"
    more = {name: value for name, value in _belonging(error).items() if value}
    return Error(type=type(error).__name__, message=message, traceback=text[-16384:], **more)


def _belonging(error: BaseException) -> dict[str, Any]:
    cause = error.__cause__
    context = None if cause or error.__suppress_context__ else error.__context__
    exceptions = getattr(error, "exceptions", ())
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return {
        "notes": [str(note)[:PART] for note in getattr(error, "__notes__", ())[:PARTS]],
        "exceptions": [_short(e) for e in exceptions[:PARTS] if isinstance(e, BaseException)]
        if isinstance(exceptions, tuple)
        else [],
        "cause": cause and _short(cause),
        "context": context and _short(context),
        "line": "" if _text(error) or not last else last[0].line,
        "code": error.code if isinstance(error, TfrunError) else "",
    }


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {_text(error)[:PART]}".partition("\n")[0]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the user's own __str__
        return "<exception str() failed>"


def trim(error: BaseException) -> None:
    """Drops the frames above the user's own from the traceback."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename in own_files:
        frames = frames.tb_next
    # A syntax error has no frame of the user's, and needs none of ours.
    error.__traceback__ = frames
