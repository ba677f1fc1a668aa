"""The errors about checkpoints, with their codes."""

from __future__ import annotations

import errno
from pathlib import Path

from tfrun.job.errors import TfrunError, UsageError

_FIXES = {
    errno.ENOSPC: "Make room on that disk, or keep fewer checkpoints",
    errno.EDQUOT: "Ask for a larger quota, or keep fewer checkpoints",
    errno.EROFS: "Name a directory on a file system that is mounted for writing",
}
_FIX = "Name a directory that this job may write to"


def cannot_write(directory: Path, error: OSError) -> TfrunError:
    reason = error.strerror or str(error)
    return TfrunError(
        "TFRUN-701",
        f"the checkpoint cannot be written: {reason}",
        where=str(directory),
        fix=_FIXES.get(error.errno or 0, _FIX),
    )


def cannot_be_used(directory: Path, error: OSError) -> UsageError:
    """Nothing has been trained yet."""
    return UsageError(
        "TFRUN-701",
        f"no checkpoint can be written there: {error.strerror or error}",
        where=str(directory),
        expected="a directory that this job may write to, or a place for one",
        fix=f"{_FIXES.get(error.errno or 0, _FIX)}; --checkpoint-dir names another one, and with "
        "--checkpoint-every off none is saved",
    )


def other_writer(directory: Path | str) -> TfrunError:
    return TfrunError(
        "TFRUN-701",
        "the checkpoint cannot be written: another process writes checkpoints there",
        where=str(directory),
        expected="one writer",
        fix="End the other job, or name another directory",
    )


def bad_interval(text: str) -> UsageError:
    return UsageError(
        "TFRUN-105",
        f"Invalid value for `--checkpoint-every`: received {text!r:.60}",
        where="--checkpoint-every",
        expected='steps ("500"), a time ("600s", "10m", "2h"), "epoch", or "off" for never',
    )
