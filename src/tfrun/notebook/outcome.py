"""What a launched job has come to: a value, or an exception."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

from tfrun.job import files
from tfrun.job.errors import CODES, TfrunError
from tfrun.notebook.job_main import REFUSED
from tfrun.observe.events import JobEvent, event_of
from tfrun.worker.launched import RESULT, error_file, said

_HEAVY = ("keras", "tensorflow")  # an exception is no reason to import them
WHERE = "tfrun.launch"


class WorkerTraceback(Exception):
    """Shows where a worker has raised the exception that this one is the cause of."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    def __str__(self) -> str:
        return f"\n{self.text.rstrip()}"


def result(folder: Path, path: Path, begin: int, code: int, name: str) -> Any:
    """Returns what the function has returned on the chief, or raises what has happened instead.

    Args:
      folder: where function and result are.
      path: the run directory.
      begin: the offset in its events.jsonl from which on they are this job's.
      code: the exit code of the job.
      name: the function's.

    Raises:
      TfrunError: see `launch`.
    """
    if (folder / REFUSED).is_file():
        raise pickle.loads(files.read(folder / REFUSED))
    end = _end(path, begin)
    if failure := end.get("failure"):
        raise _failed(folder, path, failure)
    if code == 0 and (folder / RESULT).is_file():
        return _returned(folder, path, name)
    raise _without_result(end, code, path, name)


def _end(path: Path, begin: int) -> JobEvent:
    """The event that has ended the job; empty when there is none."""
    try:
        with files.to_read(path / "events.jsonl") as file:
            file.seek(begin)
            found = [event for line in file if (event := event_of(line))]
    except OSError:
        return {}
    return next((event for event in reversed(found) if event.get("event") == "job_ended"), {})


def _failed(folder: Path, path: Path, failure: dict[str, Any]) -> TfrunError:
    task, traceback = failure["task"], failure["traceback"]
    own = _exception(folder / error_file(task))
    cause = WorkerTraceback(f"in {task.replace(':', ' ')}:\n{traceback}") if traceback else None
    if isinstance(own, TfrunError):
        own.__cause__ = cause
        return own
    headline, said = failure["headline"], " ".join(failure["said"].split("\n")[:2])
    if said:  # which begins with the kind of exception, in which the headline ends
        kind = failure.get("type", "")
        headline = f"{headline.removesuffix(f', {kind}')}: {said}"
    code = failure["code"] if failure["code"] in CODES else "TFRUN-401"
    fix = failure["fix"] or ""
    if folder.name in failure["headline"]:  # a host does not find the script in there
        fix = "Call tfrun.launch from a directory that all hosts share"
    error = TfrunError(
        code,
        headline,
        where=str(path / failure["log"]),
        fix=fix,
    )
    if own is not None:
        own.__cause__ = cause
    error.__cause__ = own or cause
    return error


class _Unpickler(pickle.Unpickler):
    """Loads what needs no TensorFlow that is not there yet: it would take the workers' GPUs."""

    def find_class(self, module: str, name: str, /) -> Any:
        if module.partition(".")[0] in _HEAVY and module not in sys.modules:
            raise pickle.UnpicklingError(f"{module} is not imported")
        return super().find_class(module, name)


def _exception(file: Path) -> BaseException | None:
    """The exception that a worker has written down; None where it cannot be made here."""
    try:
        with files.to_read(file) as stream:
            found = _Unpickler(stream).load()
    except Exception:  # an exception of somebody's own may do anything when it is made
        return None
    return found if isinstance(found, BaseException) else None


def _returned(folder: Path, path: Path, name: str) -> Any:
    try:
        with files.to_read(folder / RESULT) as file:
            return pickle.load(file)
    except Exception as error:
        kept = (folder / RESULT).replace(path / RESULT)  # it may have taken hours
        raise TfrunError(
            "TFRUN-121",
            f"what {name} has returned cannot be rebuilt in this process: {said(error)}",
            where=str(kept),
            expected="values whose modules can be imported here, too",
            fix="That file has it, as pickle has written it",
        ) from error


def _without_result(end: JobEvent, code: int, path: Path, name: str) -> TfrunError:
    fix = ""
    if end.get("state") in ("preempted", "stopped"):
        what = f"the job was {end['state']} before {name} had returned"
        fix = f"Call it again with run_dir={str(path)!r}: it goes on from what was saved"
    elif code == 0:
        what = f"{name} has ended its process on the chief (sys.exit), instead of returning"
        fix = "Return from it"
    else:
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        what = f"the job's own process has ended {how}"
    return TfrunError("TFRUN-123", what, where=WHERE, fix=fix)
