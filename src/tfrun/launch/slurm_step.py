"""`srun tfrun train.py`: every task starts tfrun, and task 0 launches.

The others learn of its control port and the job's token from a file in the run directory, which
all tasks have to see. Only its owner can read it, and it is gone when the job is: neither the
arguments nor the environment of any process ever have the token.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from tfrun.cluster.slurm import Step
from tfrun.control.plan import Site
from tfrun.job.spec import JobSpec
from tfrun.launch.backend import Job
from tfrun.launch.group import group_job


class FileMeeting:
    """A meeting by a file in a directory that all see."""

    def __init__(self, path: Path, host: str, why: str) -> None:
        """Args:
        path: the file.
        host: this machine, as the others know it: what the launcher says of itself.
        why: what those that do not come may wait for.
        """
        self._path, self._host, self.why = path, host, why
        self.port, self.token = 0, ""

    def announce(self, port: int, token: str, run_dir: Path) -> None:
        self._path.unlink(missing_ok=True)
        new = self._path.with_name(f"{self._path.name}-{os.getpid()}")
        # O_EXCL: nobody else has opened it before it was ours alone.
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump({"url": f"http://{self._host}:{port}", "token": token}, file)
        new.replace(self._path)

    def find(self) -> tuple[str, str] | None:
        with contextlib.suppress(OSError):
            os.listdir(self._path.parent)  # noqa: PTH208 (has NFS look again)
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with os.fdopen(fd) as file:
            if os.fstat(fd).st_uid != os.getuid():
                return None  # somebody else's: he would get to say what we run
            said = json.load(file)
        return said["url"], said["token"]

    def close(self) -> None:
        self._path.unlink(missing_ok=True)


def meeting_of(step: Step, run_dir: Path) -> FileMeeting:
    """Returns how the tasks of a step meet; the same for all of them."""
    name = f".slurm-{step.job}.{step.step}.{step.restarts}.json"
    why = f"its task has not come, or does not see {run_dir}"
    return FileMeeting(run_dir / name, step.here, why)


def step_job(spec: JobSpec, step: Step) -> Job:
    """Returns the job of a step whose task 0 this process is.

    Raises:
      UsageError: TFRUN-103 when there are fewer tasks than workers.
    """
    sites = [Site(agent=agent, host=node, slots=1) for agent, node in step.agents]
    meeting = meeting_of(step, Path(spec.run_dir))
    return group_job(spec, sites, step.agent, meeting, returns=False)
