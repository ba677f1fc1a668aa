"""Runs a function that `tfrun.launch` has sent, and writes down what it returns or raises.

All is in one folder, which who has sent it removes:

    <function>.py       what the workers run as their script: it calls `run`
    function.pkl        `Header`'s fields, then the function and its arguments
    result.pkl          what it has returned on the chief
    error-worker-1.pkl  what it has raised on worker 1
"""

from __future__ import annotations

import copyreg
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfrun.job import files
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import sending
from tfrun.worker import script

FUNCTION, RESULT = "function.pkl", "result.pkl"
MOST_ERROR_BYTES = 1 << 20
# Its folder is no place for imports: a function may have any name.
SCRIPT = """\
import sys

del sys.path[0]
import tfrun.worker.launched

tfrun.worker.launched.run(__file__)
"""


def error_file(task: str) -> str:
    """The name of the file with what the function has raised in a task, such as "worker:1"."""
    return f"error-{task.replace(':', '-')}.pkl"


def run(path: str) -> None:
    """Calls the function that is beside this script; whatever it raises comes through.

    Raises:
      TfrunError: TFRUN-120 where the function cannot be made here again, TFRUN-121 where what it
        has returned cannot be sent back.
    """
    script.own_files |= {path, __file__}
    folder = Path(path).parent
    try:
        function, args, kwargs = _received(folder)
        value = function(*args, **kwargs)
        if world().is_chief:
            data = _sent_back(value, Path(path).stem)
            _write(folder / RESULT, data)
    except Exception as error:
        _tell(folder, error)
        raise


def _received(folder: Path) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    with files.to_read(folder / FUNCTION) as file:
        header = pickle.load(file)
        here, there = sys.version_info[:2], header["python"]
        if here != there:
            raise TfrunError(
                "TFRUN-120",
                f"the function was sent by Python {there[0]}.{there[1]}, and this worker runs "
                f"{here[0]}.{here[1]}",
                expected="the same version: code is not the same in both",
                fix="Name a Python of that version by --remote-python",
            )
        # Modules are those of who has sent it, in its order.
        sys.path[:] = dict.fromkeys([*header["path"], *sys.path])
        sending.show_sources(header["sources"])
        try:
            function, args, kwargs = pickle.load(file)
        except TfrunError:  # of the function's module, whose import calls `tfrun.launch` itself
            raise
        except Exception as error:
            raise TfrunError(
                "TFRUN-120",
                f"a worker cannot rebuild what it was sent: {said(error)}",
                expected="functions and values whose modules workers can import as well",
                fix="Make it inside the function",
            ) from error
    _show_in_main(function)
    return function, args, kwargs


def said(error: Exception) -> str:
    """What an exception says, without all that Keras adds below it."""
    text = str(error).partition(" Full object config: ")[0]
    return f"{type(error).__name__}: {text:.400}".removesuffix(".")


def _show_in_main(function: Callable[..., Any]) -> None:
    """What the function finds in its own `__main__` is found in this process's as well.

    Keras and pickle look there for classes.
    """
    found = getattr(function, "__globals__", {})
    if found.get("__name__") == "__main__":
        main = vars(sys.modules["__main__"])
        main.update((k, v) for k, v in found.items() if not k.startswith("__"))


def _without_model(history: Any) -> tuple[Any, ...]:
    state = {k: v for k, v in vars(history).items() if k not in ("model", "_model")}
    return copyreg.__newobj__, (type(history),), state  # type: ignore[attr-defined]


def _sent_back(value: Any, name: str) -> bytes:
    if keras := sys.modules.get("keras"):
        # What `fit` returns is returned by many; who wants the model says so.
        copyreg.pickle(keras.callbacks.History, _without_model)
    try:
        return sending.pickled(value)[0]
    except Exception:
        way, part, reason = sending.culprit(value, "its value")
        kind = f"{type(part).__module__}.{type(part).__qualname__}".removeprefix("builtins.")
        raise TfrunError(
            "TFRUN-121",
            f"what {name} has returned cannot be sent back: {''.join(way)} is a {kind}: {reason}",
            expected="what pickle can write",
            fix="Return numbers, NumPy arrays or plain containers, such as model.get_weights() or "
            "history.history",
        ) from None


def _tell(folder: Path, error: Exception) -> None:
    """Lets who has called the function have its exception as it is, where that is possible."""
    try:
        data, _ = sending.pickled(error, MOST_ERROR_BYTES)
        try:
            pickle.loads(data)
        except Exception:
            data, _ = sending.pickled(_ByItsState(error), MOST_ERROR_BYTES)
        _write(folder / error_file(settings().task), data)
    except Exception:  # its text is reported in any case
        pass


class _ByItsState:
    """Is pickled as an exception whose class wants other arguments than those that it keeps."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        error = self._error
        return _without_init, (type(error), error.args), vars(error)


def _without_init(kind: type[Exception], args: tuple[Any, ...]) -> Exception:
    return kind.__new__(kind, *args)


def _write(path: Path, data: bytes) -> None:
    with files.whole(path) as temporary:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
