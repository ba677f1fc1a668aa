"""Measures where a worker's time goes, step by step, and tells once a second.

A step costs a few additions; once a second they are sent as one report of the kind "progress".
Its parts, in seconds, of the steps since the report before:

- input: waiting for the next batch.
- communication: waiting for other workers, or for the network (see engine/step_clock.py). Unknown
  where nothing is reduced by one of tfrun's strategies; then it is a part of "compute".
- compute: the rest of the step.
- other: between two steps of an epoch: callbacks, the script's own code; and what TensorFlow needs
  to call a step and to return from it.

And "network": how long the network took to send what was sent (train/network_waits.py), a part of
"communication" that no peer is to blame for.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from tfrun.engine import agree
from tfrun.job.reports import StepsMade
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.train import profiler
from tfrun.train.network_waits import Network, other_hosts

SECONDS = 1.0  # between two reports
REPORTS_PER_SECOND = 500  # of all workers together: what one controller takes with ease

Times = tuple[float, ...]  # as `engine.step_clock.Times`


class Clock(Protocol):
    """What engine/step_clock.py measures."""

    origin: float

    def read(self) -> Times: ...


class StepMeter:
    """Measures the steps of one training on this worker.

    Args:
      clock: measures inside the steps; None where nothing does.
      fetches: the batch is fetched inside the step.

    Attributes:
      call: the training's number; None where it keeps no state.
    """

    def __init__(self, clock: Clock | None, *, fetches: bool) -> None:
        self.call: int | None = None
        self._clock, self._fetches = clock, fetches
        self._every = max(SECONDS, world().size / REPORTS_PER_SECOND)
        self._read: Times = clock.read() if clock else ()
        self._is_first = True
        self._aside_since: tuple[float, float, Any] = (0.0, 0.0, None)
        self._agreed_before = agree.waited.seconds
        self._place = {"epoch": 0, "in_epoch": 0, "step": 0}
        self._aside: dict[str, float] = {}
        self._network = Network(other_hosts())
        self._cpu, self._since = time.process_time(), time.monotonic()
        self._due = self._since + self._every
        self._clear()
        self._began = self._returned = time.perf_counter()
        self._rests = True
        profiler.own.listen()

    # --- a step -----------------------------------------------------------------------------

    def begins(self) -> None:
        """The step's call, or the body of the script's loop, begins."""
        now = time.perf_counter()
        if not self._rests:
            self._between += now - self._returned
            self._agreed += agree.waited.seconds - self._agreed_before
        if self._clock:
            self._called += time.time() - self._clock.origin
        self._began, self._rests = now, False

    def returned(self, steps: int = 1) -> None:
        """It is over, and has made so many steps."""
        now = time.perf_counter()
        self._steps += steps
        self._calls += 1
        self._inside += now - self._began
        self._returned, self._agreed_before = now, agree.waited.seconds
        self._network.sample()

    def fetching(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches of a script's loop, which waits for them between its steps."""
        iterator, nothing = iter(batches), object()
        while True:
            began, read = time.perf_counter(), self._clock and self._rests and self._clock.read()
            batch = next(iterator, nothing)
            if batch is nothing:
                return
            if self._rests:  # the first one of an epoch, for which an iterator is made
                self._leave_out(read)
            else:
                self._fetching += time.perf_counter() - began
            yield batch

    @contextlib.contextmanager
    def aside(self, kind: str) -> Iterator[None]:
        """The block is no part of a step: "evaluation", "checkpoint"."""
        began, agreed = time.perf_counter(), agree.waited.seconds
        try:
            yield
        finally:
            self._took(kind, time.perf_counter() - began, agree.waited.seconds - agreed)

    def _took(self, kind: str, seconds: float, agreed: float) -> None:
        self._agreed_before += agreed
        self._aside[kind] = self._aside.get(kind, 0.0) + seconds
        if not self._rests:
            self._between -= seconds

    def evaluation_begins(self) -> None:
        read = self._clock and self._clock.read()
        self._aside_since = time.perf_counter(), agree.waited.seconds, read

    def evaluation_ends(self) -> None:
        """Its steps have waited too, which is no part of the training's."""
        began, agreed, read = self._aside_since
        self._took("evaluation", time.perf_counter() - began, agree.waited.seconds - agreed)
        self._leave_out(read)

    def _leave_out(self, read: Any) -> None:
        """What the clock has measured since it showed `read` is no part of a step."""
        if self._clock and read:
            more = [b - a for a, b in zip(read, self._clock.read(), strict=True)]
            self._read = tuple(known + much for known, much in zip(self._read, more, strict=True))

    def rests(self) -> None:
        """What comes until the next step is no part of one: an epoch ends."""
        self._rests = True

    def ended(
        self, *, epoch: int, in_epoch: int, step: int, logs: Mapping[str, Any] | None = None
    ) -> None:
        """Its callbacks are done too; reports when it is time.

        Args:
          epoch: from 0.
          in_epoch: steps of it that are done.
          step: steps of the whole training that are done.
          logs: Keras's, of the last step.
        """
        self._place = {"epoch": epoch, "in_epoch": in_epoch, "step": step}
        profiler.own.step_done(step)
        if self._is_first:  # it was traced: it says nothing about those that follow
            self._is_first = False
            self._aside["tracing"] = self._inside
            self._measured()
            self._clear()
            self._send(logs)
        elif time.monotonic() >= self._due:
            self._send(logs)

    def closes(self) -> None:
        """The training is over, for now: what has not been told is."""
        profiler.own.closes()
        if self._steps or self._aside:
            self._send(None)

    # --- the report -------------------------------------------------------------------------

    def _send(self, logs: Mapping[str, Any] | None) -> None:
        now, cpu = time.monotonic(), time.process_time()
        share = (cpu - self._cpu) / max(now - self._since, 1e-6)
        network = self._network.seconds()
        channel.emit(
            StepsMade(
                **self._place,
                call=self.call,
                steps=self._steps,
                seconds=round(self._inside + self._between, 6),
                split=self._split(),
                rss=resident(),
                cpu=round(share, 3),
                network=round(network[0], 6) if network else None,
                network_to=network[1] if network else None,
                aside={kind: round(s, 4) for kind, s in self._aside.items()} or None,
                logs=scalars(logs) if logs and world().is_chief else None,
                gpu=_gpu_bytes(),
            )
        )
        self._aside = {}
        self._clear()
        self._cpu, self._since, self._due = cpu, now, now + self._every

    def _split(self) -> list[float | None]:
        """Input, compute, communication, other."""
        measured = self._measured()
        if measured is None:
            fetched = None if self._fetches else min(self._fetching, self._between)
            other = self._between - (fetched or 0.0)
            return _rounded(fetched, self._inside, None, other)
        inside, waited, waited_for_input, waited_for_logs, arrived = measured
        if self._fetches:
            around = self._inside - inside - waited_for_input - waited_for_logs
            fetched = around
            if self._calls == self._steps:  # else several steps have begun in one call
                fetched = min(around, arrived - self._called - waited_for_input)
            other, compute = self._between + around - max(0.0, fetched), inside - waited
        else:
            fetched = self._fetching - waited_for_input
            other = self._between - self._fetching
            compute = self._inside - waited - waited_for_logs
        # What is agreed on between two steps waits for the others, too.
        waited += waited_for_input + waited_for_logs + self._agreed
        return _rounded(fetched, compute, waited, other - self._agreed)

    def _measured(self) -> tuple[float, ...] | None:
        """What the clock has measured since the last report; None without a clock."""
        if self._clock is None:
            return None
        before, self._read = self._read, self._clock.read()
        return tuple(b - a for a, b in zip(before, self._read, strict=True))

    def _clear(self) -> None:
        self._inside = self._between = self._fetching = self._called = self._agreed = 0.0
        self._steps = self._calls = 0


def scalars(logs: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of Keras's logs, at most once a second: it may wait for a GPU."""
    found: dict[str, float] = {}
    for name, value in logs.items():
        with contextlib.suppress(TypeError, ValueError):
            found[str(name)] = float(value)
    return found


def _rounded(*seconds: float | None) -> list[float | None]:
    return [None if s is None else round(max(0.0, s), 6) for s in seconds]


def resident(proc: Path = Path("/proc/self/statm")) -> int:
    """Returns the bytes of memory that this process uses now; 0 where nobody says."""
    try:
        return int(proc.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _gpu_bytes() -> int | None:
    """What TensorFlow has taken of this worker's GPUs; None without any."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    # In TensorFlow's own cluster the logical devices are those of all workers.
    gpus = [f"GPU:{number}" for number in range(context.num_gpus())]
    try:
        found = [tf.config.experimental.get_memory_info(gpu)["current"] for gpu in gpus]
    except (ValueError, tf.errors.OpError):
        return None
    return sum(found) or None
