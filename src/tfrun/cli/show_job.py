"""Runs a job, and shows a person its progress and how it ended."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfrun.cli import checkpoint_place
from tfrun.job.errors import UsageError

if TYPE_CHECKING:
    from tfrun.cli.options import Options
    from tfrun.job.first_failure import Outcome
    from tfrun.job.spec import JobSpec
    from tfrun.launcher.backend import Job
    from tfrun.observe.tensorboard import Board


def run(
    job: Job,
    options: Options,
    started: float,
    notices: Sequence[str],
    *,
    goes_on: bool,
    saves: bool,
) -> Outcome:
    """Runs a job to its end.

    Args:
      job: the job, whose run directory is there.
      options: --page, --plain and --tensorboard.
      started: when the command was, in seconds since the epoch.
      notices: what a person is told first.
      goes_on: an earlier job has left a checkpoint here.
      saves: its checkpoints are this job's own.
    """
    import asyncio

    from tfrun.launcher.launcher import run_job
    from tfrun.observe.events import EventLog
    from tfrun.observe.job_summary import beginning, print_outcome, print_start
    from tfrun.observe.live_block import is_possible
    from tfrun.observe.monitor import Monitor
    from tfrun.observe.status_board import goodput_line
    from tfrun.observe.terminal import Terminal

    spec = job.spec
    path = Path(spec.run_dir)
    board = _board(options.tensorboard, path)
    terminal = Terminal(prefix_all=spec.log_all, chief=job.plan.chief)
    print_start(terminal, spec, job.plan.serves, job.plan.part)
    for notice in notices:
        terminal.notice(notice)
    events = EventLog(path / "events.jsonl", terminal.notice)
    if board:
        events.listeners.append(board.event)
    try:
        monitor = Monitor(events, path)
        if not options.plain and is_possible():
            terminal.show_live(monitor.view)
        events.add("job", **beginning(spec, started, goes_on=goes_on))
        window = _window(spec)
        outcome = asyncio.run(
            run_job(job, events, terminal, window=window, monitor=monitor, page=options.page)
        )
    finally:
        if board:
            board.close()
        terminal.close()
        events.close()
    if outcome.exit_code == 0 and spec.checkpoint_dir and saves:
        checkpoint_place.mark_finished(spec.checkpoint_dir)
    print_outcome(outcome, spec, job.plan.chief, terminal.summary, time.time() - started)
    if terminal.is_live:
        print(f"tfrun: {goodput_line(monitor.view()['goodput'])}", file=sys.stderr)
    return outcome


def _board(folder: str | None, run_dir: Path) -> Board | None:
    """What writes for TensorBoard; only loaded when it is wanted."""
    if folder is None:
        return None
    from tfrun.observe.tensorboard import Board

    try:
        return Board(Path(folder), run_dir)
    except OSError as error:
        raise UsageError(
            "TFRUN-105",
            f"{folder!r} cannot be written: {error.strerror}",
            where="--tensorboard",
            expected="a directory for TensorBoard's files",
        ) from None


def _window(spec: JobSpec) -> tuple[int, int] | None:
    """Rows and columns of our terminal; None when there is none, or lines get a prefix."""
    if spec.log_all or sys.stdout is None or not sys.stdout.isatty():
        return None
    columns, rows = shutil.get_terminal_size()
    return rows, columns
