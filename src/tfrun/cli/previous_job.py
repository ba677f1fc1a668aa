"""Tells where an earlier job in a run directory stopped, and what of its state is on disk."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfrun.checkpoint import claims, manifest
from tfrun.job import files, reports
from tfrun.job.errors import UsageError
from tfrun.job.spec import JobSpec
from tfrun.observe.events import event_of

POLL_SECONDS = 0.1  # another process's lock has no event
READ_BYTES = 1 << 27  # of a checkpoint, which the chief reads whole: a tenth of a second
TAIL_BYTES = 1 << 20  # of the events: the last job's last step is at their end


def notices(run_dir: Path, checkpoints: Path, *, goes_on: bool) -> list[str]:
    """Returns what a person is told before a job begins in a directory that others have used."""
    step = newest_step(checkpoints) if goes_on else None
    if goes_on and step is None and any(checkpoints.glob("ckpt-*")):
        return []  # none can be read, which the chief tells and counts as a doubt
    return told_of(run_dir, step, goes_on=goes_on)


def told_of(run_dir: Path, step: int | None, *, goes_on: bool) -> list[str]:
    """Returns these lines, for the newest checkpoint's step and what the run directory tells."""
    return told(step, last_step(_last_events(run_dir / "events.jsonl")), goes_on=goes_on)


def await_agents(checkpoints: Path, spec: JobSpec) -> None:
    """Waits until the agents of a job whose launcher was killed have saved what they have."""
    until, said = time.monotonic() + claims.longest_wait(spec.timeouts), False
    while (holders := claims.held_by(checkpoints)) and time.monotonic() < until:
        if not said:
            print(f"tfrun: {claims.told(holders, spec.timeouts)}", file=sys.stderr, flush=True)
        said = True
        time.sleep(POLL_SECONDS)


def told(step: int | None, came_to: int | None, *, goes_on: bool) -> list[str]:
    """Returns these lines. Pure.

    Args:
      step: of the newest checkpoint; None where that cannot be read, or there is none.
      came_to: the last step that the job before has told of; None when it has finished, or is not
        known.
      goes_on: there are checkpoints.
    """
    from tfrun.observe.event_lines import counted  # not above: the agent is started before that

    lines = []
    if goes_on:
        where = "" if step is None else f", of step {step:,}"
        text = f"continuing from the last checkpoint here{where}; --fresh starts from the beginning"
        lines.append(text)
    if came_to and not goes_on:
        lines.append(
            f"the previous job had reached step {came_to:,} and left no checkpoint here: this "
            "one starts from the beginning"
        )
    elif came_to and step is not None and came_to > step:
        many = came_to - step
        lines.append(
            f"the previous job had reached step {came_to:,}: {counted(many, 'step')} "
            f"{'are' if many != 1 else 'is'} done again"
        )
    return lines


def batch_times(job: JobSpec, last: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Returns how many of a script's batches make a global one in a job that goes on.

    It stays as it was, on any number of workers: a schedule counts steps, and half of them were
    made with that batch. Pure.

    Args:
      job: as its command line states it.
      last: what job.json has of the job before; it may have nothing.

    Returns:
      That number, and what a person is told.

    Raises:
      UsageError: TFRUN-107, where the job before had the script's own batch and this one is not to.
    """
    then, now = last.get("batch_times", job.batch_times), job.batch_times
    if type(then) is not int or then == now:
        return now, []
    if then > 1:
        text = f"the batch stays {then} times the script's, as when this job began"
        return then, [f"{text}; --fresh starts with another one"]
    if "scale_batch" in job.stated:
        what = "--scale-batch enlarges the batch, but the job that continues here began without it"
        fix = "Leave it out, or start from the beginning with --fresh"
        raise UsageError("TFRUN-107", what, fix=fix)
    return then, []


def newest_step(checkpoints: Path) -> int | None:
    """Returns the step of the newest checkpoint that can be read; large ones are not read."""
    found = []
    for folder in checkpoints.glob("ckpt-*"):
        with contextlib.suppress(manifest.Damaged, TypeError):
            found.append((manifest.read(folder), folder))
    for one, folder in sorted(found, key=lambda each: each[0].sequence, reverse=True):
        try:
            manifest.verify(folder, one, contents=one.bytes <= READ_BYTES)
        except manifest.Damaged:
            continue
        return one.step
    return None


def last_step(events: Iterable[Mapping[str, Any]]) -> int | None:
    """Returns the last step that the last job told of; None when it has finished or told nothing.

    Pure. The last one, and not the furthest: it may have fallen back itself.
    """
    came_to: int | None = None
    for event in events:
        match event:
            case {"event": "job"} | {"event": "job_ended", "state": "finished"}:
                came_to = None
            case {"event": "recovered" | "grown" | "memory_saved", "step": int(step)}:
                came_to = step if step >= 0 else came_to
            case {"event": "progress", "step": int(step)}:
                came_to = max(step, came_to or 0)
            case {"event": "worker_report"}:
                match reports.of(event):
                    case reports.Placed(step=step) | reports.EndedAt(step=step):
                        came_to = max(step, came_to or 0)
    return came_to


def _last_events(path: Path) -> list[dict[str, Any]]:
    try:
        with files.to_read(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    return [event for event in map(event_of, lines) if event is not None]
