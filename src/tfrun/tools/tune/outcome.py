"""Tells whether a batch fitted and how fast it was, from what its job has left. Pure."""

from __future__ import annotations

import signal
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tfrun.job import reports
from tfrun.job.exits import ExitStatus
from tfrun.tools.tune.search import Result

_TYPES = ("ResourceExhaustedError", "MemoryError")
_PHRASES = (
    "OOM when allocating",
    "bad_alloc",
    "Cannot allocate memory",
    "Unable to allocate",
    "out of memory",
    "memory ran out",
    "RESOURCE_EXHAUSTED",
)
# What a process dies of that does not look whether it has got its memory.
_SIGNALS = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGKILL)


def outcome(
    batch: int,
    found: Mapping[str, Any] | None,
    events: Sequence[Mapping[str, Any]],
    log: str,
    *,
    limited: bool,
) -> Result | None:
    """Returns the result; None when the job failed for another reason than memory.

    Args:
      batch: samples on each worker.
      found: what the chief has written, if it came to that.
      events: all of the job.
      log: the end of what the workers have written.
      limited: their memory was limited, so that SIGKILL, or a crash, came of that.
    """
    if found is not None and found["outcome"] == "measured":
        rates = [n / s for n, s in zip(found["counts"], found["seconds"], strict=True) if s > 0]
        return Result(
            batch=batch,
            rate=statistics.median(rates),
            milliseconds=1000 * statistics.median(found["seconds"]),
            memory=found["memory"],
        )
    if found is not None:
        return Result(batch=batch, ended_by="data", how=f"{found['samples']} samples in all")
    how = _out_of_memory(events, log, limited)
    return Result(batch=batch, ended_by="memory", how=how) if how else None


def _out_of_memory(events: Sequence[Mapping[str, Any]], log: str, limited: bool) -> str:
    for event in events:
        match reports.of(event):
            case reports.Error(type=kind, message=text):
                if kind in _TYPES or any(phrase in text for phrase in _PHRASES):
                    return kind
        if event["event"] == "worker_exited" and event["code"] < 0:
            if "memory ran out" in event["status"]:
                return "killed for lack of memory"
            refused = limited or any(phrase in log for phrase in _PHRASES)
            if refused and -event["code"] in _SIGNALS:
                return str(ExitStatus(code=event["code"]))
    return ""
