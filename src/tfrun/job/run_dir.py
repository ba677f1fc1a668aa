"""The run directory: where a job writes everything."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
from pathlib import Path
from typing import Any

from tfrun.job import files
from tfrun.job.errors import UsageError

MAX_NAME = 100  # characters of the program's name; file systems take 255 in all
PROBE_BYTES = 4096
FINISHED = "finished"


def default_name(program: str, now: float) -> str:
    """Returns "<program>-<date>-<time>", safe as a file name."""
    return f"{safe_name(program)}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}"


def safe_name(program: str) -> str:
    """Returns a name that is safe as the beginning of a file's."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", program)[:MAX_NAME].strip("-.") or "job"


def create(stated: str | None, program: str, now: float) -> Path:
    """Makes the run directory with its logs/ and returns its absolute path.

    Args:
      stated: the directory that the user named; by default a new one under tfrun-runs/.
      program: the program's short name.
      now: seconds since the epoch.

    Raises:
      UsageError: TFRUN-104, when it cannot be made or written.
    """
    path = Path(stated) if stated else Path("tfrun-runs", default_name(program, now))
    try:
        if stated:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path = _make_new(path)
        path = path.resolve()
        (path / "logs").mkdir(exist_ok=True)
        _look_for_others(path)
        probe = path / f".writable-{os.getpid()}"
        try:
            probe.unlink(missing_ok=True)
            with probe.open("xb") as file:  # no link that somebody has put there
                file.write(bytes(PROBE_BYTES))  # an empty file fits on a full disk
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None
    return path


def _look_for_others(path: Path) -> None:
    """Raises OSError where something else stands in the place of a file that will be written.

    Another user may have put it there; `own_file` sees to what he does later.
    """
    logs = path / "logs"
    if logs.is_symlink() and logs.lstat().st_uid != os.getuid():
        raise OSError(errno.ELOOP, "logs is another user's symbolic link")
    for file in (path / "events.jsonl", path / ".lock", *logs.glob("*.log")):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(file.lstat().st_mode):
                name = file.relative_to(path)
                raise OSError(errno.EEXIST, f"{name} is a link, or anything but a file")
            if not os.access(file, os.W_OK):
                raise OSError(errno.EACCES, f"{file.relative_to(path)} may not be written")


def checkpoints(path: Path, stated: str, *, fresh: bool, now: float) -> str:
    """Returns the absolute path of the checkpoint directory, which may not be there yet.

    Args:
      path: the run directory.
      stated: the directory as the user named it; by default checkpoints/ in the run directory.
      fresh: put aside what is there, so that the job begins at the beginning. What a job that
        has finished left is put aside too.
      now: seconds since the epoch.

    Raises:
      UsageError: TFRUN-104, when what is there cannot be put aside.
    """
    folder = checkpoint_folder(path, stated)
    if (fresh and folder.exists()) or (folder / FINISHED).exists():
        try:
            folder.rename(folder.with_name(default_name(folder.name, now)))
        except OSError as error:
            raise _unwritable(folder, error) from None
    return str(folder)


def checkpoint_folder(path: Path, stated: str) -> Path:
    """Returns the absolute path of the checkpoint directory of a run directory's job."""
    return Path(stated).resolve() if stated else path / "checkpoints"


def has_checkpoints(folder: Path) -> bool:
    """Whether a checkpoint directory holds something to go on from, readable or not."""
    return any(folder.glob("ckpt-*")) or any(folder.glob("calls/call-*"))


def next_ledger(path: Path) -> int:
    """Returns the number of a job that writes a ledger in this run directory, from 1."""
    names = (file.name.partition("-")[0] for file in (path / "ledger").glob("*.jsonl"))
    return max((int(name) for name in names if name.isdecimal()), default=0) + 1


def newest(folder: Path) -> Path | None:
    """Returns the run directory in `folder` whose job has begun last; None when there is none."""
    return next(iter(runs(folder)), None)


def runs(folder: Path) -> list[Path]:
    """Returns the run directories in `folder`, the one whose job has begun last first."""
    began = {run: _began(run) for run in folder.glob("*")}
    found = [run for run, time in began.items() if time]
    return sorted(found, key=lambda run: began[run], reverse=True)


def _began(run: Path) -> int:
    """When the directory's newest job has begun, in nanoseconds; 0 for what is none of a job."""
    for name in ("job.json", "events.jsonl"):  # the second where the first is damaged
        with contextlib.suppress(OSError):
            status = (run / name).stat()
            if stat.S_ISREG(status.st_mode):
                return status.st_mtime_ns
    return 0


def mark_finished(folder: str) -> None:
    """Notes in a checkpoint directory that the job it belongs to has finished."""
    with contextlib.suppress(OSError):  # there is none, or it is another machine's
        os.close(files.opener(Path(folder, FINISHED), os.O_WRONLY | os.O_CREAT))


def last_job(path: Path) -> dict[str, Any]:
    """Returns what `write_job` has written here before; empty when there is nothing to read."""
    try:
        job = json.loads(files.read(path / "job.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return job if isinstance(job, dict) else {}


def write_job(path: Path, job: dict[str, Any]) -> None:
    """Writes job.json, whole or not at all, for this user's eyes only: arguments may be secrets.

    Raises:
      UsageError: TFRUN-104, when it cannot be written.
    """
    try:
        files.write_private(path / "job.json", json.dumps(job, indent=2, default=str) + "\n")
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        "TFRUN-104",
        f"the run directory {str(path)!r} cannot be written: {error.strerror}",
        where="--run-dir",
        fix="Name a directory on a disk with space that you may write to",
    )


def _make_new(path: Path) -> Path:
    """Two jobs that start in the same second get two directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in range(1000):
        candidate = path.with_name(f"{path.name}-{number + 1}") if number else path
        with contextlib.suppress(FileExistsError):
            candidate.mkdir()
            return candidate
    raise FileExistsError(17, "too many runs in one second")
