"""Runs jobs on the hosts of a lab."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import TFRUN, Lab, why_not

from conftest import wait_until

JOB_SECONDS = 120
REASON = why_not()
needs_hosts = pytest.mark.skipif(bool(REASON), reason=f"no hosts to test with: {REASON}")
thorough = pytest.mark.thorough
# Steps until somebody ends it; tells by a file that all have met.
ENDLESS = """
import os, pathlib, time
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
context = tf.distribute.get_replica_context
step = tf.function(lambda: strategy.run(lambda: context().all_reduce("SUM", tf.constant(1.0))))
step()
pathlib.Path("running-" + os.environ["RANK"]).touch()
while True:
    step()
    time.sleep(0.01)
"""


class Hosts:
    """A lab, with `tfrun` started on its first host."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab, self.directory = lab, directory
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TFRUN_")},
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
            "PASSED": "through",
        }
        self.environment.pop("TF_CONFIG", None)
        self._job: subprocess.Popen | None = None

    def start(
        self, text: str, *args: str, script: tuple[str, ...] = ("train.py",)
    ) -> subprocess.Popen:
        """Starts `tfrun args… script…` on the first host; `text` is that of train.py."""
        (self.directory / "train.py").write_text(text)
        # Into files, so that a test can look at what has been said while the job runs.
        outputs = [self._output(stream).open("wb") for stream in ("out", "err")]
        command = [TFRUN, *args, *script]  # of which the first may be a verb
        try:
            given = (command, self.directory, self.environment)
            self._job = self.lab.start("n1", *given, *outputs)
            return self._job
        finally:
            for file in outputs:
                file.close()

    def _output(self, stream: str) -> Path:
        return self.lab.directory / f"job.{stream}"

    @property
    def said(self) -> str:
        """What the job has said so far on its standard error."""
        return self._output("err").read_text()

    def until_said(self, pattern: str) -> None:
        """Waits until the job has said something that fits a regular expression."""
        wait_until(lambda: re.search(pattern, self.said), f"{pattern!r} is said", JOB_SECONDS)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Returns the events of a kind in the run directory "run"."""
        lines = (self.directory / "run" / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def run(self, script: str, *args: str) -> tuple[int, str, str]:
        """Returns the exit code, the standard output and the standard error of a whole job."""
        return self.end(self.start(script, *args))

    def end(self, process: subprocess.Popen, seconds: float = JOB_SECONDS) -> tuple[int, str, str]:
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill(process)
            out = self._output("out").read_text()
            pytest.fail(f"more than {seconds} s\n{out[-2000:]}\n{self.said[-4000:]}")
        return code, self._output("out").read_text(), self.said

    def kill(self, process: subprocess.Popen) -> None:
        """Ends a command with SIGKILL, if it still runs."""
        if process.poll() is None:
            os.kill(self.lab.pid_of(process), signal.SIGKILL)
            process.wait(10)

    def wait_until_running(self, ranks: int) -> None:
        wanted = [self.directory / f"running-{rank}" for rank in range(ranks)]

        def all_run() -> bool:
            assert self._job is None or self._job.poll() is None, self.said
            return all(path.exists() for path in wanted)

        wait_until(all_run, "all steps run", JOB_SECONDS)

    def left(self) -> list[str]:
        """Returns what still runs on any host."""
        return [text for name in self.lab.names for text in self.lab.processes(name)]


def three_hosts(tmp_path: Path, *, shared: bool) -> Iterator[Hosts]:
    """Yields three hosts; fails if processes still run on them at the end."""
    directory = tmp_path / "lab"
    work = tmp_path / "work"
    directory.mkdir()
    work.mkdir()
    lab = Lab(directory, 3, None if shared else work)
    try:
        lab.up()
        there = Hosts(lab, work)
        yield there
        deadline = time.monotonic() + 8
        while (left := there.left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, f"processes were left behind: {left}"
    finally:
        lab.down()
