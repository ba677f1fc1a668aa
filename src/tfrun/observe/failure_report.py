"""Reports a job's failure: what failed first, how, and what only followed from it. Pure."""

from __future__ import annotations

from typing import Any

from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure, Outcome
from tfrun.job.reports import Error
from tfrun.observe.event_lines import counted, name_of
from tfrun.observe.exception_summary import essence, frames, plain
from tfrun.observe.known_failures import advice

MAX_TRACEBACK = 8000  # characters


def headline(failure: Failure) -> str:
    """Returns one sentence: which task failed, how, and why that was the end."""
    if not (limit := failure.in_a_row):
        return _what_failed(failure)
    many = f"{counted(limit, 'restart')} in a row"
    return f"{_what_failed(failure)}; {many} made no progress (--max-restarts {limit})"


def _what_failed(failure: Failure) -> str:
    if failure.status is None and not failure.error:
        return failure.tail
    if failure.strict:
        return "ended by --strict"
    kind = failure.error.type if failure.error else ""
    what = f"{name_of(failure.task)} failed first: {failure.status or ExitStatus(code=1)}"
    return what if kind in ("", "SystemExit") else f"{what}, {kind}"


def detail_of(failure: Failure, most: int) -> list[str]:
    """Returns what a person reads of it: the end of the traceback, and what the exception says.

    Args:
      failure: any.
      most: lines of the traceback, or of the log where the process has ended without one.
    """
    if not failure.error:
        tail = failure.tail.rstrip().splitlines()
        most = most or 1
        return ["…", *tail[-most:]] if most < len(tail) else tail
    above = frames(failure.error)
    if not most or failure.error.type == "SystemExit":
        above = []
    cut = ["…"] if len(above) > most else []
    return [*cut, *above[-most:], *essence(failure.error)]


def others_text(others: int) -> str:
    """Returns the sentence about those that a failure has stopped; "" without any."""
    if not others:
        return ""
    verb = "other task was" if others == 1 else "other tasks were"
    return f"{others} {verb} stopped because of it."


def log_of(task: str) -> str:
    """Returns the name of a task's log in the run directory; of an agent, that of all logs."""
    return f"logs/{task.replace(':', '-')}.log" if ":" in task else "logs"


def failure_json(outcome: Outcome) -> dict[str, Any] | None:
    """Returns what `JobView` says of a failure; None when there was none."""
    cause = outcome.cause
    if cause is None:
        return None
    known = advice(cause, outcome.differing)
    error = cause.error or Error(type="", message="", traceback="")
    traceback = plain(error.traceback or cause.tail)
    return {
        **{"task": cause.task, "code": cause.code, "headline": headline(cause)},
        "type": error.type,
        "message": plain(error.message)[:MAX_TRACEBACK],
        "said": "\n".join(essence(cause.error)) if cause.error else "",
        "traceback": traceback[-MAX_TRACEBACK:],
        **{"others": outcome.others, "others_text": others_text(outcome.others)},
        **{"likely": known and known.likely, "fix": known and known.fix},
        "log": log_of(cause.task),
    }


def end_of(outcome: Outcome) -> dict[str, Any]:
    """Returns the fields of the event that ends a job."""
    if outcome.cause is not None and not outcome.requeue:
        state = "failed"
    elif outcome.preempted or outcome.requeue:
        state = "preempted"
    else:
        state = "stopped" if outcome.interrupted else "finished"
    return {
        **{"state": state, "exit_code": outcome.exit_code, "restarts": outcome.restarts},
        "failure": failure_json(outcome),
    }
