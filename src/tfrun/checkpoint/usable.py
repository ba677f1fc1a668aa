"""Whether checkpoints can be written to a directory: asked before anything is trained."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from tfrun.checkpoint.errors import cannot_be_used
from tfrun.checkpoint.files import remove, write_synced

WAIT_SECONDS = 10.0  # for a disk that does not answer


def check(directory: Path) -> None:
    """Writes a byte to the directory, or to where it would be made; leaves nothing behind.

    Raises:
      UsageError: TFRUN-701.
    """
    there = directory
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


def check_or_tell(directory: Path, tell: Callable[[str], object]) -> None:
    """As `check`; a disk that does not answer is told of, and not waited for.

    Raises:
      UsageError: TFRUN-701.
    """
    found: list[Exception] = []

    def look() -> None:
        try:
            check(directory)
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=look, name="tfrun checkpoint directory", daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    if thread.is_alive():
        tell(
            f"{directory} has not answered for {WAIT_SECONDS:.0f} s: training begins, and no "
            "checkpoint is saved until it does"
        )
    if found:
        raise found[0]
