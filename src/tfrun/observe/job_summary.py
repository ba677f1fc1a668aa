"""The lines that are printed before and after a job."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfrun.job.first_failure import Outcome
from tfrun.job.spec import JobSpec
from tfrun.job.version import __version__
from tfrun.observe.terminal import Terminal, report_failure


def beginning(spec: JobSpec, now: float, *, goes_on: bool) -> dict[str, Any]:
    """Returns the fields of the event that begins a job."""
    return {
        **{"name": spec.program.name, "script": spec.program.target, "started": now},
        "workers": {"low": spec.workers.low, "high": spec.workers.high},
        **{"ps": spec.ps, "seed": spec.seed, "goes_on": goes_on},
        **{"host": socket.gethostname(), "pid": os.getpid(), "version": __version__},
    }


def print_start(terminal: Terminal, spec: JobSpec, serves: str = "", part: str = "") -> None:
    """Says what starts where, in one line.

    Args:
      terminal: where.
      spec: the job.
      serves: the name of the task that this is, of a cluster that is started by hand, if it runs
        no script.
      part: which task this is of a cluster that somebody else has stated.
    """
    if serves:
        what = f"{serves.replace(':', ' ')} serves until the chief has ended"
        return terminal.notice(f"{what} · run directory {_short(spec.run_dir)}")
    workers = spec.workers.high
    parts = [spec.program.name, part or f"{workers} worker" + ("s" if workers != 1 else "")]
    if spec.ps:
        parts.append(f"{spec.ps} parameter server" + ("s" if spec.ps != 1 else ""))
    if spec.evaluator:
        parts.append("an evaluator")
    parts.append(f"run directory {_short(spec.run_dir)}")
    terminal.notice(" · ".join(parts))


def print_outcome(
    outcome: Outcome, spec: JobSpec, chief: str, fit: Mapping[str, Any], seconds: float
) -> None:
    """Says how it went: the summary, or the report of the failure."""
    run = _short(spec.run_dir)
    if outcome.cause is not None:
        log = f"{run}/logs/{outcome.cause.task.replace(':', '-')}.log"
        if not Path(log).exists():
            log = f"{run}/logs"
        shown = spec.log_all or outcome.cause.task == chief
        seen = shown and not outcome.cause.follows_from_a_peer
        report_failure(
            outcome.cause,
            outcome.others,
            log,
            seen=seen,
            restarts=outcome.restarts,
            differing=outcome.differing,
        )
        if outcome.saved_step is not None:
            print(f"tfrun: {_goes_on(outcome.saved_step, spec)}", file=sys.stderr)
        elif outcome.unsaved:
            text = f"what was trained could not be saved: {outcome.unsaved}"
            print(f"tfrun: {text}", file=sys.stderr)
        return
    if outcome.preempted:
        print(
            f"tfrun: preempted by {outcome.interrupted} after {seconds:.1f} s; "
            f"{_goes_on(outcome.saved_step, spec)}",
            file=sys.stderr,
        )
        return
    if outcome.interrupted:
        unsaved = f"; what was trained could not be saved: {outcome.unsaved}"
        print(
            f"tfrun: stopped by {outcome.interrupted} after {seconds:.1f} s"
            f"{unsaved if outcome.unsaved else ''}",
            file=sys.stderr,
        )
        return
    parts = [
        f"finished in {seconds:.1f} s",
        *_restarts(outcome.restarts),
        *_replaced(outcome.replaced),
        *_throughput(fit),
        *_skipped(fit),
    ]
    logs = fit.get("logs") or {}
    parts += [f"{name} {value:.4f}" for name, value in _numbers(logs)]
    print(f"tfrun: {' · '.join(parts)}", file=sys.stderr)
    for doubt in outcome.doubts:
        print(f"tfrun: WARNING {doubt}", file=sys.stderr)
    print(f"tfrun: logs and events in {run}", file=sys.stderr)


def _goes_on(step: int | None, spec: JobSpec) -> str:
    where, run = _short(spec.checkpoint_dir), _short(spec.run_dir)
    saved = f"step {step:,} is saved in {where}" if step is not None else "nothing is unsaved"
    return f"{saved}, and the same command with --run-dir {run} goes on"


def _restarts(count: int) -> list[str]:
    return [f"{count} restart" + ("s" if count != 1 else "")] if count else []


def _replaced(count: int) -> list[str]:
    return [f"{count} worker" + ("s" if count != 1 else "") + " replaced"] if count else []


def _throughput(fit: Mapping[str, Any]) -> list[str]:
    samples, steps, seconds = fit.get("samples"), fit.get("steps"), fit.get("seconds")
    if not seconds:
        return []
    if samples:
        return [f"{samples / seconds:,.0f} samples/s"]
    return [f"{steps / seconds:,.1f} steps/s"] if steps else []


def _skipped(fit: Mapping[str, Any]) -> list[str]:
    count = fit.get("skipped")
    return [f"{count} sample" + ("s" if count != 1 else "") + " left out"] if count else []


def _numbers(logs: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the metrics; a loss that is no number travels as "NaN"."""
    for name, value in logs.items():
        if isinstance(value, float) or value in ("NaN", "Infinity", "-Infinity"):
            yield name, float(value)


def _short(path: str) -> str:
    """Returns the path relative to the working directory when it is below it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (OSError, ValueError):  # the working directory may have been removed
        return path
