"""Where a job's checkpoints are, on disk or in object storage: who uses them, what is there."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from tfrun.cli import previous_job
from tfrun.job import lock, run_dir
from tfrun.job.errors import TfrunError
from tfrun.job.spec import JobSpec
from tfrun.storage.url import is_url

if TYPE_CHECKING:
    from tfrun.checkpoint.remote_directory import RemoteDirectory


class LocalPlace:
    """A directory, which other machines may have to themselves.

    Args:
      run_dir: of the job.
      stated: the directory as the user named it, "" for that of the run directory.
      is_local: the job is on this machine alone.
    """

    lease = ""

    def __init__(self, run_dir: Path, stated: str, *, is_local: bool) -> None:
        self._run_dir, self._is_local = run_dir, is_local
        self._stated = str(Path(stated).resolve()) if stated else ""
        self.where = self._stated

    def taken(self, spec: JobSpec) -> AbstractContextManager[object]:
        """Waits for those of a job before, who still save."""
        with self.held():
            folder = run_dir.checkpoint_folder(self._run_dir, self._stated)
            previous_job.await_agents(folder, spec)
        return contextlib.nullcontext()

    def begin(self, *, fresh: bool, now: float) -> None:
        """Puts aside what is not to be gone on from. Raises: UsageError: TFRUN-104."""
        self.where = run_dir.checkpoints(self._run_dir, self._stated, fresh=fresh, now=now)

    def has_checkpoints(self) -> bool:
        return run_dir.has_checkpoints(Path(self.where))

    def notices(self, *, goes_on: bool) -> list[str]:
        """What a person is told before the job begins."""
        return previous_job.notices(self._run_dir, Path(self.where), goes_on=goes_on)

    def held(self) -> AbstractContextManager[object]:
        """Holds it, where it is not the run directory's own, and seen from here.

        Raises:
          UsageError: TFRUN-110, when another job uses it.
        """
        folder = Path(self._stated)
        if not self._stated or not (self._is_local or folder.exists()):
            return contextlib.nullcontext()
        with contextlib.suppress(OSError):  # the chief tells that it cannot be used
            folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            return contextlib.nullcontext()
        where = "--checkpoint-dir"
        return lock.held(folder, "job", what="checkpoint directory", where=where)


class RemotePlace:
    """A place in object storage, held by a lease from the beginning to the end of the job.

    Its methods raise TfrunError TFRUN-704 where the storage cannot be used.

    Attributes:
      lease: by what it shows.
    """

    def __init__(self, run_dir: Path, where: str) -> None:
        self._run_dir, self.where = run_dir, where
        self.lease = uuid.uuid4().hex

    def taken(self, spec: JobSpec) -> AbstractContextManager[object]:
        """Waits for those of a job before, who still save, then holds it.

        Raises:
          UsageError: TFRUN-110, when another job uses it.
        """
        return _directory(self.where).held(self.lease, _tell, spec.timeouts)

    def begin(self, *, fresh: bool, now: float) -> None:
        """Puts aside what is not to be gone on from."""
        _directory(self.where).begin(fresh=fresh, now=now)

    def has_checkpoints(self) -> bool:
        return _directory(self.where).has_checkpoints()

    def notices(self, *, goes_on: bool) -> list[str]:
        """What a person is told before the job begins."""
        step = _directory(self.where).newest_step() if goes_on else None
        return previous_job.told_of(self._run_dir, step, goes_on=goes_on)

    def held(self) -> AbstractContextManager[object]:
        """It is already."""
        return contextlib.nullcontext()


def of(run_dir: Path, stated: str, *, is_local: bool) -> LocalPlace | RemotePlace:
    """Returns the place that a user has named; "" is the run directory's own."""
    if is_url(stated):
        return RemotePlace(run_dir, stated)
    return LocalPlace(run_dir, stated, is_local=is_local)


def mark_finished(where: str) -> None:
    """Notes in such a place that the job it belongs to has finished."""
    if not is_url(where):
        run_dir.mark_finished(where)
        return
    try:
        _directory(where).mark_finished()
    except TfrunError as error:
        _tell(
            f"{error} The same command would continue from the end of this job; --fresh starts "
            "from the beginning"
        )


def _directory(where: str) -> RemoteDirectory:
    from tfrun.checkpoint.remote_directory import RemoteDirectory  # which loads numpy

    return RemoteDirectory(where)


def _tell(text: str) -> None:
    print(f"tfrun: {text}", file=sys.stderr, flush=True)
