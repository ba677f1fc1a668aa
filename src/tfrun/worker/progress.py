"""How a worker shows that it goes on: a few numbers in memory that its agent looks at.

A worker writes them around each step, which costs less than a microsecond; nothing is sent. When
training stands still, they tell the one that stands in its own code from those that wait for it
in a collective.
"""

from __future__ import annotations

import contextlib
import enum
import faulthandler
import functools
import mmap
import os
import signal
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Not SIGUSR1 or SIGUSR2, which scripts and schedulers use.
DUMP_SIGNAL: int = getattr(signal, "SIGRTMIN", signal.SIGUSR2) + 7
DUMP_SECONDS = 1.0  # for the stacks to be written
STEPS_WAITED_FOR = 10
_FORMAT = struct.Struct("dqd")  # when (monotonic seconds), phase, mean step (seconds)


class Phase(enum.IntEnum):
    """What a worker is doing."""

    OTHER = 0  # whatever has no usual time: loading, tracing, validation, saving
    BETWEEN = 1  # between two steps of one epoch
    STEP = 2  # in a step that has been traced, or in another collective


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an agent reads: when the phase began, which it is, and how long a step takes."""

    since: float
    phase: Phase
    step_seconds: float


class Progress:
    """A worker's side."""

    def __init__(self, path: Path) -> None:
        with path.open("wb+") as file:
            file.write(bytes(_FORMAT.size))
            file.flush()
            self._memory = mmap.mmap(file.fileno(), _FORMAT.size)
        self._began, self._mean, self._traced = 0.0, 0.0, False
        self._phase = Phase.OTHER

    def other(self) -> None:
        """What comes now has no usual time."""
        self._write(Phase.OTHER)

    def step_begins(self) -> None:
        """The first one of all is traced, which takes long."""
        self._began = time.monotonic()
        self._write(Phase.STEP if self._traced else Phase.OTHER)

    def step_returned(self) -> None:
        """The step is done; callbacks come."""
        if self._traced:
            seconds = time.monotonic() - self._began
            self._mean = seconds if not self._mean else 0.9 * self._mean + 0.1 * seconds
        self._traced = True
        self._write(Phase.BETWEEN)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """For a collective outside the steps."""
        before = self._phase
        if before is Phase.BETWEEN:
            self._write(Phase.STEP)
        yield
        self._write(before)

    def _write(self, phase: Phase) -> None:
        self._phase = phase
        _FORMAT.pack_into(self._memory, 0, time.monotonic(), phase, self._mean)


def path_of(folder: Path, task: str) -> Path:
    """The file of a worker in its machine's state directory."""
    return folder / f"progress-{task.replace(':', '-')}"


def read(path: Path) -> Reading | None:
    """What a worker has shown last; None when it has shown nothing yet."""
    try:
        since, phase, mean = _FORMAT.unpack(path.read_bytes())
        return Reading(since=since, phase=Phase(phase), step_seconds=mean) if since else None
    except (OSError, ValueError, struct.error):
        return None


def hung(readings: Mapping[str, Reading], *, now: float, timeout: float) -> dict[str, float]:
    """The workers of a machine that are to be replaced, with the seconds they have stood still.

    Args:
      readings: of each worker.
      now: monotonic seconds.
      timeout: how long a worker may stand still at least, in seconds. One that waits in a step
        gets twice as long: on another machine may be the one that it waits for.
    """
    found = {}
    for task, reading in readings.items():
        allowed = max(timeout, STEPS_WAITED_FOR * reading.step_seconds)
        factor = {Phase.BETWEEN: 1, Phase.STEP: 2}.get(reading.phase)
        seconds = now - reading.since
        if factor is not None and seconds > factor * allowed:
            found[task] = seconds
    return found


def dump_stacks_on_signal() -> None:
    """Has this process write all its Python stacks to its log when the agent asks for it."""
    faulthandler.register(DUMP_SIGNAL, file=sys.__stderr__ or 2, all_threads=True, chain=False)


@functools.cache
def own() -> Progress | None:
    """This worker's progress; None outside a job."""
    folder, task = os.environ.get("TFRUN_STATE_DIR"), os.environ.get("TFRUN_TASK")
    try:
        return Progress(path_of(Path(folder), task)) if folder and task else None
    except OSError:
        return None  # the memory is full: nobody watches


def in_collective() -> contextlib.AbstractContextManager[None]:
    """While it lasts this worker waits for others."""
    mine = own()
    return mine.waiting() if mine else contextlib.nullcontext()
