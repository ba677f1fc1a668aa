"""This machine's agent as a process, which may start before its task is known.

Importing this is quick, and the launcher does it before it imports what it needs itself: meanwhile
the agent's zygote is importing TensorFlow, which is what everybody waits for in the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tfrun.agent.settings import AgentSettings
from tfrun.agent.worker_environment import worker_environment
from tfrun.agent.zygote_process import forks
from tfrun.job import files
from tfrun.job.spec import JobSpec, WorkerRange
from tfrun.process import lineage, sigterm
from tfrun.process.python import python_command, usable_cores

if TYPE_CHECKING:
    import asyncio


ALONE = "local"  # the only agent of a job on this machine


def slots_alone(workers: WorkerRange, external: str) -> int:
    """How many workers the only agent of a job takes.

    Args:
      workers: the job's.
      external: the TF_CONFIG that was in the environment, when it states the cluster.
    """
    return 1 if external else workers.high


class AgentProcess:
    """An agent that runs, until `close` at the latest."""

    def __init__(self, name: str, spec: JobSpec, workers: int) -> None:
        """Starts it, and its zygote where workers are forks.

        Args:
          name: the agent's.
          spec: the job, with its run directory.
          workers: how many of them this machine takes.
        """
        lineage.adopt_orphans()
        logs = Path(spec.run_dir, "logs")
        zygote = None
        if forks(spec.start_method):
            wanted = worker_environment(
                os.environ, spec, workers_here=workers, cores=usable_cores()
            )
            variables = {k: v for k, v in wanted.items() if os.environ.get(k) != v}
            zygote = {
                "log": str(logs / f"{name}.zygote.log"),
                "variables": variables,
                "script": spec.program.file,
            }
        self._log = logs / f"{name}.agent.log"
        with files.append_to(self._log) as log, sigterm.shielded():
            self._begin = log.tell()
            self._process = subprocess.Popen(
                python_command("tfrun.agent.start", json.dumps(zygote)),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the launcher alone, which decides
            )
        self._ending: asyncio.Task[int] | None = None

    def tell(self, settings: AgentSettings) -> None:
        """Tells it what to do, once."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `wait` tells
            self._process.stdin.write(settings.to_line())
            self._process.stdin.flush()

    def hang_up(self) -> None:
        """Has it end itself and all that it has started."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def terminate(self) -> None:
        """Says that the machine is being preempted."""
        self._process.terminate()

    def close(self) -> None:
        """Ends it, if it has not ended yet."""
        self.hang_up()
        self._process.kill()
        self._process.wait()

    def last_words(self) -> str:
        """Returns the last line in its log: an exception, if it raised one."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(self._begin)
            lines = log.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    async def wait(self) -> int:
        """Waits until it has ended; returns its exit code, negative for a signal's number."""
        import asyncio  # 20 ms that the start can do without

        if self._ending is None:
            self._ending = asyncio.create_task(asyncio.to_thread(self._process.wait))
        return await asyncio.shield(self._ending)
