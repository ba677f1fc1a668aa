"""One job at a time in a run directory, or with its checkpoints: two would mix what they write."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from tfrun.job import files
from tfrun.job.errors import UsageError
from tfrun.job.lock import WriterLock


@contextlib.contextmanager
def held(
    path: Path, task: str = "", *, what: str = "run directory", where: str = "--run-dir"
) -> Iterator[None]:
    """Holds a directory for this process; the kernel lets go of it however the process ends.

    Args:
      path: the directory.
      task: of a cluster that others have started, whose tasks may share a run directory.
      what: what it is.
      where: the option that names it.

    Raises:
      UsageError: TFRUN-110, when a job uses it.
    """
    file = path / (f".lock-{task}" if task else ".lock")
    lock = WriterLock(file)
    if not lock.acquire():
        raise UsageError(
            "TFRUN-110",
            f"the {what} {str(path)!r} is in use by {_holder(file)}",
            where=where,
            fix="Name another directory, or end that job: tfrun stop, with its run directory",
        )
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        # On a full disk it is not told who holds it.
        with contextlib.suppress(OSError), open(file, "w", opener=files.opener) as holder:
            holder.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
        yield
    finally:
        lock.release()


def _holder(file: Path) -> str:
    try:
        return files.read(file).decode(errors="replace").strip()[:200] or "another job"
    except OSError:
        return "another job"
