"""Shows that a worker makes progress: a few numbers in memory that its agent reads.

A worker writes them around each step, which costs less than a microsecond; nothing is sent. When
training stands still, they tell the one that stands in its own code from those that wait for it
in a collective.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import mmap
import os
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfrun.job.settings import settings
from tfrun.process import channel

LOOK = "look"  # what an agent says to a worker whose loop it wonders about
# When (monotonic seconds), phase, usual step (seconds), steps of the training that are done.
_FORMAT = struct.Struct("dqdq")
_TRACED_PART = 0.3  # of the first step's time counts as usual: other shapes are traced later
LONG = 3.0  # times what a step takes usually
BUSY = 0.05  # of a processor; what waits uses far less


class Phase(enum.IntEnum):
    """What a worker is doing."""

    OTHER = 0  # the script's own part, which has no usual time
    BETWEEN = 1  # between two steps of one epoch
    STEP = 2  # in a step that has been traced, or in another collective
    BODY = 3  # in the body of a loop of the script's own: a step, and whatever else
    TRACING = 4  # in a first step
    PAUSE = 5  # saving, or what callbacks do when an epoch ends
    LOOP = 6  # between two commits of a loop of the script's own, or after the last one
    WORKERS_START = 7  # in the workers' start, which waits for all the others, without any end


# What happens in between, and in which phases that is shown; in others they go on.
_INSTEAD_OF = {
    Phase.STEP: set(Phase) - {Phase.OTHER, Phase.TRACING},
    Phase.PAUSE: set(Phase) - {Phase.OTHER},
    Phase.WORKERS_START: set(Phase),
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an agent reads: when the phase began, which it is, and how long a step takes.

    And how many steps of the training are done; 0 where nobody counts them.
    """

    since: float
    phase: Phase
    step_seconds: float
    step: int = 0


class Processor:
    """Tells whether this process has used the processor since that was asked last.

    Attributes:
      asked: when that was, monotonic seconds.
    """

    def __init__(self) -> None:
        self._used, self.asked = time.process_time(), time.monotonic()

    def was_used(self) -> bool:
        """Whether so much that something goes on; what waits leaves it alone."""
        used, asked = self._used, self.asked
        self._used, self.asked = time.process_time(), time.monotonic()
        return self._used - used > BUSY * (self.asked - asked)


class Progress:
    """Shows this worker's progress to its agent."""

    def __init__(self, path: Path) -> None:
        with path.open("wb+") as file:
            file.write(bytes(_FORMAT.size))
            file.flush()
            self._memory = mmap.mmap(file.fileno(), _FORMAT.size)
        self._began, self._since = 0.0, 0.0
        self._usual: dict[str, float] = {}  # seconds of a step, of each kind that has been traced
        self._newest: dict[str, float] = {}  # what the last one of each kind has taken
        self._phase, self._kind, self._step = Phase.OTHER, "", 0
        self._processor = Processor()

    def other(self) -> None:
        """What comes now has no usual time."""
        self._write(Phase.OTHER)

    def pause(self) -> None:
        """What comes now takes longer than a step."""
        self._write(Phase.PAUSE)

    def begins(self) -> None:
        """A training begins: none of its steps is done, and none is traced yet."""
        self._usual.clear()
        self._step = 0

    def forget(self, kind: str) -> None:
        """The next step of a kind is traced."""
        self._usual.pop(kind, None)

    def step_begins(self, kind: str = "train") -> None:
        """The first one of a kind is traced, which takes long."""
        self._began, self._kind = time.monotonic(), kind
        self._write(Phase.STEP if kind in self._usual else Phase.TRACING)

    def body_begins(self) -> None:
        """As `step_begins`, where the script does the step."""
        self.step_begins()
        if self._phase is Phase.STEP:
            self._write(Phase.BODY)

    def body_ended(self, step: int) -> None:
        """As `step_returned`; the next batch, which comes now, may have to be waited for."""
        self.step_returned(step)
        self._write(Phase.BODY)

    def committed(self, step: int) -> None:
        """The script has said that a step of its own is done; nobody knows which is the last."""
        self._step = step
        self._write(Phase.LOOP)

    def step_returned(self, step: int | None = None) -> None:
        """The step is done, the training's number `step`; callbacks come."""
        self._step = self._step if step is None else step
        now, kind = time.monotonic(), self._kind
        seconds, usual = now - self._began, self._usual.get(kind)
        if usual is None:
            usual = _TRACED_PART * seconds
        elif kind == "train":
            usual = 0.9 * usual + 0.1 * seconds
        if kind != "train":
            usual = max(usual, seconds)
        self._usual[kind], self._newest[kind] = usual, seconds
        self._phase, self._since = Phase.BETWEEN, now
        _FORMAT.pack_into(self._memory, 0, now, Phase.BETWEEN, usual, self._step)

    def is_in_usual_step(self) -> bool:
        """Whether a step runs that has been traced, and has not taken much longer than others."""
        usual = self._usual.get(self._kind)
        if self._phase is not Phase.STEP or usual is None:
            return False
        # After the first one, nobody knows yet how much of it was tracing.
        return time.monotonic() - self._began < LONG * max(usual, self._newest[self._kind])

    @property
    def is_tracing(self) -> bool:
        """Whether a first step runs."""
        return self._phase is Phase.TRACING

    @contextlib.contextmanager
    def meanwhile(self, phase: Phase) -> Iterator[None]:
        """While it lasts this worker is in a phase of `_INSTEAD_OF`, and then where it was."""
        before = self._phase
        if before in _INSTEAD_OF[phase]:
            self._write(phase)
        try:
            yield
        finally:
            self._write(before)

    @contextlib.contextmanager
    def as_before(self) -> Iterator[None]:
        """What comes shows its own progress, and leaves no trace of it."""
        before, began, kind = self._phase, self._began, self._kind
        try:
            yield
        finally:
            self._began, self._kind = began, kind
            self._write(before)

    def look(self) -> None:
        """Finds out whether something goes on: the agent asks, and a thread answers.

        What waits for a peer, a lock or a clock leaves the processor alone; what evaluates, or
        fills a shuffle buffer, does not. And the body of a loop waits for others when it stands in
        an operation of TensorFlow's.
        """
        phase, since = self._phase, self._since
        before, is_busy = self._processor.asked, self._processor.was_used()
        now = self._processor.asked
        if phase not in (Phase.BODY, Phase.LOOP, Phase.STEP):
            return
        if before > since and is_busy:
            self._show(now, phase)
            self._since = since = now
        else:
            waits = phase is Phase.BODY and _is_in_tensorflow()
            self._show(since, Phase.STEP if waits else phase)
        if (self._phase, self._since) != (phase, since):  # in the meantime
            self._show(self._since, self._phase)

    def _write(self, phase: Phase) -> None:
        self._phase, self._since = phase, time.monotonic()
        self._show(self._since, phase)

    def _show(self, since: float, phase: Phase) -> None:
        _FORMAT.pack_into(
            self._memory, 0, since, phase, self._usual.get(self._kind, 0.0), self._step
        )


def _is_in_tensorflow() -> bool:
    """Whether the main thread stands in one of TensorFlow's operations."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    name = frame.f_code.co_filename if frame else ""
    return "/tensorflow/python/" in name.replace(os.sep, "/")


def path_of(folder: Path, process: str) -> Path:
    """The file of a worker's process in its machine's state directory; its task may change."""
    return folder / f"progress-{process.replace(':', '-')}"


def read(path: Path) -> Reading | None:
    """What a worker has shown last; None when it has shown nothing yet."""
    try:
        since, phase, mean, step = _FORMAT.unpack(path.read_bytes())
        found = Reading(since=since, phase=Phase(phase), step_seconds=mean, step=step)
        return found if since else None
    except (OSError, ValueError, struct.error):
        return None


@functools.cache
def own() -> Progress | None:
    """This worker's progress; None outside a job."""
    folder, task = settings().state_path, settings().task
    try:
        made = Progress(path_of(folder, str(os.getpid()))) if folder and task else None
    except OSError:
        return None  # the memory is full: nobody watches
    if made is not None:
        channel.when(LOOK, made.look)
    return made


def as_before() -> contextlib.AbstractContextManager[None]:
    """While it lasts something else shows its progress."""
    mine = own()
    return mine.as_before() if mine else contextlib.nullcontext()


def pausing() -> contextlib.AbstractContextManager[None]:
    """While it lasts this worker does something that takes longer than a step."""
    return _meanwhile(Phase.PAUSE)


def workers_start() -> contextlib.AbstractContextManager[None]:
    """While it lasts this worker waits for all the others to come to their strategy."""
    return _meanwhile(Phase.WORKERS_START)


def in_collective() -> contextlib.AbstractContextManager[None]:
    """While it lasts this worker waits for others."""
    return _meanwhile(Phase.STEP)


def _meanwhile(phase: Phase) -> contextlib.AbstractContextManager[None]:
    mine = own()
    return mine.meanwhile(phase) if mine else contextlib.nullcontext()
