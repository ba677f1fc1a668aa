"""The lines that are printed before and after a job."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from tfrun.job.first_failure import Outcome
from tfrun.job.spec import JobSpec
from tfrun.job.version import __version__
from tfrun.observe.event_lines import counted, name_of
from tfrun.observe.failure_report import detail_of, headline, log_of, others_text
from tfrun.observe.known_failures import advice
from tfrun.observe.terminal import Terminal
from tfrun.observe.time_series import metric

TRACEBACK_LINES = 12


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
        what = f"{name_of(serves)} serves until the chief has ended"
        return terminal.notice(f"{what} · run directory {_short(spec.run_dir)}")
    workers = spec.workers.high
    parts = [spec.program.name, part or counted(workers, "worker")]
    if spec.ps:
        parts.append(counted(spec.ps, "parameter server"))
    if spec.evaluator:
        parts.append("an evaluator")
    parts.append(f"run directory {_short(spec.run_dir)}")
    terminal.notice(" · ".join(parts))


def print_outcome(
    outcome: Outcome, spec: JobSpec, chief: str, fit: Mapping[str, Any], seconds: float
) -> None:
    """Says how it went: the summary, or the report of the failure."""
    run = _short(spec.run_dir)
    unsaved = f"what was trained could not be saved: {outcome.unsaved}"
    lines: list[str] = []
    if cause := outcome.cause:
        log = f"{run}/{log_of(cause.task)}"
        shown = spec.log_all or cause.task == chief
        report_failure(
            outcome,
            log if Path(log).exists() else f"{run}/logs",
            seen=shown and not cause.follows_from_a_peer,
        )
        if outcome.saved_step is not None:
            lines.append(_goes_on(outcome.saved_step, spec))
        elif outcome.unsaved:
            lines.append(unsaved)
    elif outcome.preempted:
        end = f"preempted by {outcome.interrupted} after {seconds:.1f} s"
        lines.append(f"{end}; {_goes_on(outcome.saved_step, spec)}")
    elif outcome.interrupted:
        end = f"stopped by {outcome.interrupted} after {seconds:.1f} s"
        lines.append(f"{end}; {unsaved}" if outcome.unsaved else end)
    else:
        parts = [f"finished in {seconds:.1f} s", *_counts(outcome, fit)]
        logs = {k: metric(v) for k, v in (fit.get("logs") or {}).items() if not isinstance(v, int)}
        parts += [f"{name} {value:.4f}" for name, value in logs.items() if value is not None]
        lines += [" · ".join(parts), *(f"WARNING {doubt}" for doubt in outcome.doubts)]
        lines.append(f"logs and events in {run}")
    for line in lines:
        print(f"tfrun: {line}", file=sys.stderr)


def report_failure(
    outcome: Outcome, log: str, *, seen: bool, console: Console | None = None
) -> None:
    """Prints the one report of a failed job: who, how, the traceback's end, where to read on.

    Args:
      outcome: with a cause.
      log: the path of the failed task's log.
      seen: its output was on the terminal, the traceback above us: what it says is enough.
      console: where to print; by default standard error.
    """
    failure = outcome.cause
    assert failure is not None
    console = console or Console(stderr=True, highlight=False, soft_wrap=False)
    lines: list[Text] = [Text(f"{failure.code}: {headline(failure)}", style="bold")]
    detail = detail_of(failure, 0 if seen else TRACEBACK_LINES)
    if (detail and failure.status is not None) or failure.error:
        lines += [Text.from_ansi(line) for line in ["", *detail]]
    if known := advice(failure, outcome.differing):
        lines += [Text(""), Text(f"Likely cause: {known.likely}."), Text(f"Fix: {known.fix}.")]
    lines.append(Text(""))
    if outcome.others:
        lines.append(Text(others_text(outcome.others)))
    if times := outcome.restarts:
        often = "once" if times == 1 else f"{times} times"
        lines.append(Text(f"The job had been restarted {often} before."))
    lines.append(Text(f"Log: {log}"))
    console.print(Panel(Group(*lines), title="tfrun: the job failed", border_style="red"))


def _goes_on(step: int | None, spec: JobSpec) -> str:
    where, run = _short(spec.checkpoint_dir), _short(spec.run_dir)
    saved = f"step {step:,} is saved in {where}" if step is not None else "nothing is unsaved"
    return f"{saved}, and the same command with --run-dir {run} goes on"


def _counts(outcome: Outcome, fit: Mapping[str, Any]) -> Iterator[str]:
    if outcome.restarts:
        yield counted(outcome.restarts, "restart")
    if outcome.replaced:
        yield f"{counted(outcome.replaced, 'worker')} replaced"
    if seconds := fit.get("seconds"):
        if samples := fit.get("samples"):
            yield f"{samples / seconds:,.0f} samples/s"
        elif steps := fit.get("steps"):
            yield f"{steps / seconds:,.1f} steps/s"
    if skipped := fit.get("skipped"):
        yield f"{counted(skipped, 'sample')} left out"


def _short(path: str) -> str:
    """Returns the path relative to the working directory when it is below it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (OSError, ValueError):  # the working directory may have been removed
        return path
