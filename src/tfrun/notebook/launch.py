"""`tfrun.launch`: runs a function on workers, and returns what the chief has returned."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tfrun.job import run_dir, settings
from tfrun.job.errors import UsageError
from tfrun.job.world import world_from_environment
from tfrun.notebook import job_options, outcome
from tfrun.notebook.job_options import WHERE
from tfrun.notebook.job_process import JobProcess
from tfrun.observe.events import end_of_lines
from tfrun.process import sending
from tfrun.worker.launched import FUNCTION, SCRIPT

T = TypeVar("T")


def launch(
    function: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    workers: int | str = 2,
    **options: Any,
) -> T:
    """Runs `function(*args, **kwargs)` on workers, as `tfrun` runs a script.

    It blocks until the job has ended, and shows its output. The function may be one of a notebook:
    it is sent with what it uses. Nothing is sent back but what it returns on the chief.

    Args:
      function: what each worker calls. It trains as a script does; TensorFlow's objects that it
        uses are best made in it.
      args: its positional arguments.
      kwargs: its keyword arguments.
      workers: how many, or "MIN:MAX".
      **options: those of the command line, with Python's names: `run_dir="runs/a"`,
        `max_restarts=0`, `in_place=True`.

    Returns:
      What the function has returned on the chief (worker 0).

    Raises:
      UsageError: an option, the function or what it is called with is wrong (TFRUN-101 to 111,
        120); nothing was started, or it was called by a worker (TFRUN-122).
      TfrunError: the job failed. The code is that of the first failure (TFRUN-401 and others), its
        `__cause__` the function's own exception, if that can be sent. TFRUN-121: what it has
        returned cannot be sent back. TFRUN-123: the job has ended without a result.
      KeyboardInterrupt: the job was interrupted here; it has ended.

    Example:
      ```python
      losses = tfrun.launch(train, args=(3,), workers=4)
      ```
    """
    _check_place()
    name = _name_of(function)
    given = {"workers": workers, **options}
    words = job_options.arguments(given)
    stated = job_options.checked(words, f"{name}.py").spec.run_dir
    data = _packed(function, name, args, kwargs or {})
    _warn_of_gpus()
    with _run_directory(stated, name) as path, _folder(path) as folder:
        script = folder / f"{name}.py"
        script.write_text(SCRIPT, encoding="utf-8")
        (folder / FUNCTION).write_bytes(data)
        begin = end_of_lines(path / "events.jsonl")
        words += ["--run-dir", str(path), "--", str(script)]
        environment = job_options.unset(given, os.environ)
        with JobProcess(words, folder, environment) as job:
            code = job.wait()
        return outcome.result(folder, path, begin, code, name)


def _check_place() -> None:
    """Refuses what would start jobs without end, or a cluster's tasks once more."""
    if settings.VARIABLE in os.environ:
        raise UsageError(
            "TFRUN-122",
            "this process is a worker: it would start workers, which would start workers, and so "
            "on",
            where=WHERE,
            fix="Call it in the program that starts the job alone, for example below "
            'if __name__ == "__main__"',
        )
    if world_from_environment(os.environ).in_job:
        raise UsageError(
            "TFRUN-107",
            "TF_CONFIG states a cluster, whose tasks others have started",
            where=WHERE,
            fix="Unset TF_CONFIG, or run a script by tfrun in each task",
        )


def _name_of(function: Callable[..., Any]) -> str:
    if not callable(function):
        what = f"{function!r:.60} cannot be called"
        raise UsageError("TFRUN-105", what, where=WHERE, expected="a function")
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        # A call would run nothing of it, and that would be seen when the job ends.
        kind = "a generator" if inspect.isgeneratorfunction(function) else "async"
        what = f"{function.__name__} is {kind}, so that a call alone runs nothing of it"
        fix = "Send a function that runs it and returns its results: asyncio.run(…), list(…)"
        raise UsageError("TFRUN-105", what, where=WHERE, fix=fix)
    return run_dir.safe_name(getattr(function, "__name__", type(function).__name__))


def _packed(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bytes:
    """The function and its arguments, behind what a worker has to know to read them.

    Raises:
      UsageError: TFRUN-105 or 120.
    """
    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
        what = f"the arguments are {args!r:.60} and {kwargs!r:.60}"
        expected = f"args=(…,) and kwargs={{…}}, with which {name} is called"
        raise UsageError("TFRUN-105", what, where=WHERE, expected=expected)
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError("TFRUN-105", f"{name} cannot be called: {error}", where=WHERE) from None
    except ValueError:  # it has no signature, as some of C's
        pass
    parts = {name: function}
    parts |= {f"argument {number}": value for number, value in enumerate(args)}
    parts |= {f"argument {key!r}": value for key, value in kwargs.items()}
    try:
        data, sources = sending.pickled((function, tuple(args), dict(kwargs)))
    except Exception as error:
        raise _not_sent(parts, error) from None
    header = {
        "python": sys.version_info[:2],
        "path": [str(Path(p).absolute()) for p in sys.path],  # "" is this directory
        "sources": sources,
    }
    return pickle.dumps(header) + data


def _not_sent(parts: Mapping[str, Any], error: Exception) -> UsageError:
    for name, part in parts.items():
        try:
            sending.pickled(part)
        except Exception:
            way, what, reason = sending.culprit(part, name)
            kind = f"{type(what).__module__}.{type(what).__qualname__}".removeprefix("builtins.")
            begin = max(n for n, step in enumerate(way) if not step.startswith((".", "[")))
            return UsageError(
                "TFRUN-120",
                f"{''.join(way[begin:])} is a {kind}, which cannot be sent to workers: {reason}",
                where=" → ".join(way),
                fix="Make it inside the function: each worker has its own",
            )
    return UsageError(
        "TFRUN-120", f"the function or its arguments cannot be sent to workers: {error}"
    )


@contextlib.contextmanager
def _run_directory(stated: str, name: str) -> Iterator[Path]:
    """The job's directory; one that was made for nothing, because the job is refused, goes again.

    Raises:
      UsageError: TFRUN-104.
    """
    is_new = not (stated and Path(stated).exists())
    path = run_dir.create(stated or None, name, time.time())
    try:
        yield path
    finally:
        if is_new and not (path / "job.json").exists():
            shutil.rmtree(path, ignore_errors=True)
            if not stated:
                with contextlib.suppress(OSError):  # that of all runs; others are there
                    path.parent.rmdir()


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """A folder in the run directory, for this user alone, as long as the job runs."""
    folder = Path(tempfile.mkdtemp(prefix="launch-", dir=path))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _warn_of_gpus() -> None:
    """Says that this process holds GPUs, of whose memory TensorFlow has taken nearly all."""
    module = sys.modules.get("tensorflow.python.eager.context")
    context = getattr(module, "_context", None)
    if context is None or not getattr(context, "_initialized", False):
        return
    if count := len(context.list_logical_devices("GPU")):
        print(
            f"tfrun: WARNING: TensorFlow in this process holds {count} GPU(s), whose memory the "
            "workers lack. Restart the kernel, and call tfrun.launch before anything else uses "
            "TensorFlow.",
            flush=True,
        )
