"""A real `tfrun` as a child process, whose events are read while it runs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tfrun.drill.events import Event, Worker
from tfrun.job.python import python_command
from tfrun.worker import lineage

POLL_SECONDS = 0.02
# Variables that the jobs do not get: a drill is for a script on this machine, and a checkpoint of
# one job must not be where the next one begins.
_OWN = ("TFRUN_CHECKPOINT_DIR", "TFRUN_HOSTS", "TFRUN_HOSTFILE", "TFRUN_MODULE")
END_SECONDS = 10.0  # what Ctrl-C gives the workers, the agent and the launcher to leave, and more


class Job:
    """One run of the script; a context manager that leaves nothing of it behind.

    Attributes:
      run_dir: where it writes.
      log: what it shows a person.
      timed_out: it was ended because it took longer than it may.
    """

    def __init__(
        self,
        options: Sequence[str],
        run_dir: Path,
        *,
        timeout: float,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Starts `tfrun --run-dir RUN_DIR options…`; `timeout` in seconds is for the whole run."""
        self.run_dir, self.log = run_dir, run_dir.with_suffix(".log")
        self.timed_out = False
        self._events: list[Event] = []
        self._offset = 0
        self._deadline = time.monotonic() + timeout
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*python_command("tfrun.cli.main"), "--run-dir", str(run_dir), *options],
                env=_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C comes to us alone, and we end it
                preexec_fn=_die_with_us(),
            )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def events(self) -> list[Event]:
        """Returns all events so far; a line that is still being written comes the next time."""
        with (
            contextlib.suppress(FileNotFoundError),
            Path(self.run_dir, "events.jsonl").open("rb") as file,
        ):
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
            self._offset += len(whole) + len(newline)
            self._events += [json.loads(line) for line in whole.splitlines()]
        return self._events

    def until(self, condition: Callable[[list[Event]], Any]) -> Any:
        """Waits until the events fulfil a condition and returns its value.

        Returns None when the job has ended, or had to be ended, before.
        """
        while True:
            ended = not self._goes_on(time.time() + POLL_SECONDS)
            if value := condition(self.events()):
                return value
            if ended:
                return None

    def lasts_until(self, when: float) -> bool:
        """Waits for a time, in seconds since the epoch; False when the job ends before."""
        while time.time() < when:
            if not self._goes_on(when):
                return False
        return self._process.poll() is None

    def wait(self) -> int:
        """Waits for the end and returns the exit code, -N when signal N ended it."""
        while self._goes_on(time.time() + 3600):
            pass
        return self._process.wait()

    def send(self, worker: Worker, signum: signal.Signals) -> bool:
        """Signals a worker; False when there is no such process of this job any more."""
        try:
            # Its number may be another's by now: nobody else's process is to be hit.
            ours = any(p.pid == self._process.pid for p in psutil.Process(worker.pid).parents())
            if ours:
                os.kill(worker.pid, signum)
        except (psutil.Error, ProcessLookupError):
            return False
        return ours

    def end(self) -> None:
        """Ends the job as Ctrl-C does, and with SIGKILL when that takes too long."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel then ends what it has started
            self._process.wait()

    def _goes_on(self, until: float) -> bool:
        """Waits for the job's end, at most until a time; True when it still runs."""
        left = self._deadline - time.monotonic()
        if left <= 0 and self._process.poll() is None:
            self.timed_out = True
            self.end()
        try:
            self._process.wait(max(0.0, min(until - time.time(), left)))
        except subprocess.TimeoutExpired:
            return True
        return False


def _environment(outer: Mapping[str, str]) -> dict[str, str]:
    """Returns `outer` with the workers told that this is a drill.

    They then report their weights' digest.
    """
    kept = {name: value for name, value in outer.items() if name not in _OWN}
    return {**kept, "TFRUN_DRILL": "1"}


def _die_with_us() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    return functools.partial(lineage.die_with_parent, os.getpid())
