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


def _environment(environment: Mapping[str, str], *, draws: bool) -> dict[str, str]:
    """The job's variables; `draws`: it shows itself on a terminal."""
    found = dict(environment)
    if found.get("MPLBACKEND", "").startswith("module://"):
        del found["MPLBACKEND"]  # it draws into a notebook's page
    if not draws:
        for name in _OF_NOTEBOOKS:
            found.pop(name, None)
    return found


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
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()  # what the caller has said comes first
        out, err = subprocess.PIPE, subprocess.STDOUT
        if job_can_write():  # on a terminal itself, with a live block
            out, err = (None if s.isatty() else subprocess.PIPE for s in (sys.stdout, sys.stderr))
        self._process = subprocess.Popen(
            python_command("tfrun.notebook.job_main", told),
            env=_environment(environment, draws=None in (out, err)),
            stdin=subprocess.PIPE,  # closes with this process, which ends the job
            stdout=out,
            stderr=err,
            start_new_session=True,  # Ctrl-C comes to us alone, and we end it
        )
        shown = ((self._process.stdout, sys.stdout), (self._process.stderr, sys.stderr))
        self._cells = {
            pipe.fileno(): Cell(stream, redraw=redraws(stream)) for pipe, stream in shown if pipe
        }

    def __enter__(self) -> JobProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def wait(self) -> int:
        """Shows its output until it ends; returns its exit code, -N when signal N ended it.

        A KeyboardInterrupt ends it, gently first, and comes through.
        """
        try:
            self._follow(None)
        except KeyboardInterrupt:
            self._send(signal.SIGINT)
            self._follow(time.monotonic() + END_SECONDS)
            raise
        return self._process.wait()

    def _follow(self, until: float | None) -> None:
        """Shows what it says until it ends, or until a time."""
        while until is None or time.monotonic() < until:
            if not self._read(LOOK_SECONDS) and self._process.poll() is not None:
                while self._read(0):
                    pass
                for cell in self._cells.values():
                    cell.close()
                return

    def _read(self, seconds: float) -> bool:
        """Shows a piece of output; False when none has come for so long."""
        ready = select.select([*self._cells], [], [], seconds)[0] if self._cells else []
        for fd in ready:
            if data := os.read(fd, 1 << 16):
                self._cells[fd].feed(data)
            else:  # nobody writes there any more
                self._cells.pop(fd).close()
        if not self._cells:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        return bool(ready)

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
            ends = (self._process.stdin, self._process.stdout, self._process.stderr)
            for pipe in filter(None, ends):
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
