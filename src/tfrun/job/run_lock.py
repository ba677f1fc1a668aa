"""One job at a time in a run directory, or with its checkpoints: two would mix what they write."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tfrun.job.errors import UsageError
from tfrun.job.lock import WriterLock, say_who, who_holds


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
            f"the {what} {str(path)!r} is in use by {who_holds(file) or 'another job'}",
            where=where,
            fix="Name another directory, or end that job: tfrun stop, with its run directory",
        )
    try:
        say_who(file, time.strftime(" since %Y-%m-%d %H:%M:%S"))
        yield
    finally:
        lock.release()
