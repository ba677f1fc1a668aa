"""A launched job as a child process of the caller's, which shows what it says."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tfrun.notebook.cell_output import Cell, job_can_write, redraws
from tfrun.process.python import python_command

END_SECONDS = 15.0  # what Ctrl-C gives workers, agent and launcher to leave, and more
LOOK_SECONDS = 0.5
# With these, what runs in a notebook writes for its page, although nobody there reads it.
_OF_NOTEBOOKS = ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR")


class JobProcess:
    """One job; a context manager that leaves no process of it behind."""

    def __init__(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ
    ) -> None:
        """Starts `tfrun words…`.

        Args:
          words: its command line.
          folder: where function and result are.
          environment: its variables.
        """
        told = json.dumps({"folder": str(folder), "words": [*words], "caller": os.getpid()})
        self._cell: Cell | None = None
        if not job_can_write():
            self._cell = Cell(sys.stdout, redraw=redraws(sys.stdout))
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # what the caller has said comes first
        self._process = subprocess.Popen(
            python_command("tfrun.notebook.job_main", told),
            env=self._environment(environment),
            stdin=subprocess.PIPE,  # closes with this process, which ends the job
            stdout=subprocess.PIPE if self._cell else None,
            stderr=subprocess.STDOUT if self._cell else None,
            start_new_session=True,  # Ctrl-C comes to us alone, and we end it
        )

    def _environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        found = dict(environment)
        if found.get("MPLBACKEND", "").startswith("module://"):
            del found["MPLBACKEND"]  # it draws into a notebook's page
        if self._cell:
            for name in _OF_NOTEBOOKS:
                found.pop(name, None)
        return found

    def __enter__(self) -> JobProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def wait(self) -> int:
        """Shows its output until it ends; returns its exit code, -N when signal N ended it.

        A KeyboardInterrupt ends it, gently first, and comes through. So does what `sys.stdout`
        raises.
        """
        try:
            self._follow(None)
        except KeyboardInterrupt:
            self._send(signal.SIGINT)
            self._follow(time.monotonic() + END_SECONDS)
            raise
        if self._cell:
            self._cell.close()
        return self._process.wait()

    def _follow(self, until: float | None) -> None:
        """Shows what it says until it ends, or until a time."""
        while until is None or time.monotonic() < until:
            if not self._read(LOOK_SECONDS) and self._process.poll() is not None:
                while self._read(0):
                    pass
                return

    def _read(self, seconds: float) -> bool:
        """Shows a piece of output; False when none has come for so long."""
        if self._cell is None or self._process.stdout is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return False
        fd = self._process.stdout.fileno()
        if not select.select([fd], [], [], seconds)[0]:
            return False
        if data := os.read(fd, 1 << 16):
            self._cell.feed(data)
        else:  # nobody writes any more: it ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        return bool(data)

    def _send(self, signum: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signum)

    def _end(self) -> None:
        """Ends what is left of it."""
        try:
            if self._process.poll() is None:
                self._send(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_SECONDS)
        finally:
            self._kill()
            for pipe in filter(None, (self._process.stdin, self._process.stdout)):
                with contextlib.suppress(OSError):
                    pipe.close()

    def _kill(self) -> None:
        if self._process.poll() is not None:
            return
        with contextlib.suppress(psutil.Error):
            job = psutil.Process(self._process.pid)
            left = [job, *job.children(recursive=True)]
            for process in left:  # the job first, which would start others anew
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left[1:], timeout=END_SECONDS)
        self._process.wait()
