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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tfrun.job.errors import TfrunError
from tfrun.observe.events import JobEvent, new_lines
from tfrun.process import lineage
from tfrun.process.python import python_command

Say = Callable[[str], None]

# What a job that measures something does without.
QUIET = ("--max-restarts", "0", "--checkpoint-every", "off", "--snapshot-every", "0")
POLL_SECONDS = 0.02
LAST_LINES = 12
# Variables that the jobs do not get: an experiment is for a script on this machine, and a
# checkpoint of one job must not be where the next one begins.
_OWN = ("TFRUN_CHECKPOINT_DIR", "TFRUN_HOSTS", "TFRUN_HOSTFILE", "TFRUN_MODULE", "TFRUN_FRESH")
END_SECONDS = 10.0  # what Ctrl-C gives the workers, the agent and the launcher to leave, and more


class ChildJob:
    """One run of the script; a context manager that leaves nothing of it behind.

    Attributes:
      run_dir: where it writes.
      log: what it shows a person.
      began: when it was started, in seconds since the epoch.
      timed_out: it was ended because it took longer than it may.
    """

    def __init__(
        self,
        options: Sequence[str],
        run_dir: Path,
        *,
        timeout: float,
        again: bool = False,
        wanted: Mapping[str, str],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Starts `tfrun --run-dir RUN_DIR options…`.

        Args:
          options: its command line.
          run_dir: where it writes.
          timeout: seconds for the whole run.
          again: it goes on where an earlier one in the same directory was.
          wanted: variables that tell its workers what is wanted of them.
          environment: all others.
        """
        self.run_dir, self.log = run_dir, run_dir.with_suffix(".again.log" if again else ".log")
        self.began = time.time()
        self.timed_out = False
        self._events: list[JobEvent] = []
        self._offset = 0
        self._deadline = time.monotonic() + timeout
        die_with_us = functools.partial(lineage.die_with_parent, os.getpid())
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*python_command("tfrun.cli.main"), "--run-dir", str(run_dir), *options],
                env={k: v for k, v in environment.items() if k not in _OWN} | dict(wanted),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C comes to us alone, and we end it
                preexec_fn=die_with_us if sys.platform == "linux" else None,
            )

    def __enter__(self) -> ChildJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def events(self) -> list[JobEvent]:
        """Returns all events so far; a line that is still being written comes the next time."""
        more = True
        while more:
            found = new_lines(self.run_dir / "events.jsonl", self._offset)
            self._events += map(json.loads, found.lines)
            self._offset, more = found.offset, found.more
        return self._events

    def until(self, condition: Callable[[list[JobEvent]], Any]) -> Any:
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

    def send(self, pid: int, signum: signal.Signals) -> bool:
        """Signals a process; False when there is no such process of this job any more."""
        try:
            # Its number may be another's by now: nobody else's process is to be hit.
            ours = any(p.pid == self._process.pid for p in psutil.Process(pid).parents())
            if ours:
                os.kill(pid, signum)
        except (psutil.Error, ProcessLookupError):
            return False
        return ours

    def preempt(self) -> None:
        """Tells the whole job to save and to end."""
        self._process.send_signal(signal.SIGTERM)

    def until_shown(self, text: str) -> bool:
        """Waits until a person is shown a text; False when the job ends without it."""
        return bool(self.until(lambda _: text in self.log.read_text(errors="replace")))

    def connections(self) -> list[psutil.Process]:
        """The processes of this job that hold connections to its hosts."""
        try:
            children = psutil.Process(self._process.pid).children(recursive=True)
            return [child for child in children if child.name() == "ssh"]
        except psutil.Error:
            return []

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


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Several jobs of one script, which write into a folder, an absolute path.

    Each may take `timeout` seconds.
    """

    program: tuple[str, ...]
    seed: int
    deterministic: bool = False
    folder: Path
    timeout: float

    def job(
        self, name: str, *options: str, wanted: Mapping[str, str], again: bool = False
    ) -> ChildJob:
        """Starts one that writes into `name`; the arguments are as those of `ChildJob`."""
        stated = ["--seed", str(self.seed), *["--deterministic"] * self.deterministic]
        command = [*options, *stated, "--", *self.program]
        folder = self.folder / name
        return ChildJob(command, folder, timeout=self.timeout, again=again, wanted=wanted)


@contextlib.contextmanager
def ends_children_on_signals() -> Iterator[None]:
    """Has SIGTERM and SIGHUP unwind the stack, as Ctrl-C does, so that no job is left."""

    def leave(signum: int, _: object) -> None:
        raise SystemExit(128 + signum)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def failed(job: ChildJob, code: int, what: str) -> TfrunError:
    """The error for a job that should not have failed.

    `what` it was: "without any fault the job".
    """
    last = job.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    how = "took too long" if job.timed_out else f"ended with {code}"
    return TfrunError(
        "TFRUN-401",
        f"{what} {how}",
        where=str(job.log),
        fix="Make it run with tfrun alone first. Its output ends with: " + " | ".join(last),
    )
