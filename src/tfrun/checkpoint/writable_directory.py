"""Checks before training whether checkpoints can be written to a directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tfrun.checkpoint.answer_in_time import WAIT_SECONDS, within
from tfrun.checkpoint.durable_files import remove, write_synced
from tfrun.checkpoint.errors import cannot_be_used
from tfrun.storage.url import is_url


def check(directory: Path | str, tell: Callable[[str], object]) -> None:
    """Writes a byte to the directory, or to where it would be made; leaves nothing behind.

    Args:
      directory: a path; or the URL of a place in object storage.
      tell: tells a person that an object storage is waited for.

    Raises:
      UsageError: TFRUN-701; TFRUN-704 for object storage.
    """
    if isinstance(directory, str) and is_url(directory):
        from tfrun.checkpoint.remote_directory import RemoteDirectory

        RemoteDirectory(directory).check(tell)
        return
    there = directory = Path(directory).absolute()
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
        probe = there / f".probe-{os.getpid()}"
        try:
            write_synced(probe, b"\n")
        finally:
            remove(probe)
    except OSError as error:
        raise cannot_be_used(directory, error) from None


def check_or_tell(directory: Path | str, tell: Callable[[str], object]) -> None:
    """As `check`; a disk that does not answer is told of, and not waited for.

    Raises:
      UsageError: TFRUN-701; TFRUN-704 for object storage, which has a deadline of its own.
    """
    if isinstance(directory, str) and is_url(directory):
        check(directory, tell)
        return
    try:
        within(lambda: check(directory, tell))
    except TimeoutError:
        tell(
            f"{directory} has not answered for {WAIT_SECONDS:.0f} s: training begins, and no "
            "checkpoint is saved until it does"
        )
