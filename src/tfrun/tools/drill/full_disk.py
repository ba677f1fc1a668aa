"""A disk that fills up: a small file system in memory, which only root can mount."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SIZE = "256m"
_CHUNK = bytes(1 << 20)


def why_not() -> str:
    """Why no small file system can be had here; "" when it can."""
    if sys.platform != "linux" or not shutil.which("mount"):
        return "needs Linux, to mount a small file system"
    return "" if os.geteuid() == 0 else "needs root, to mount a small file system"


@contextlib.contextmanager
def small(path: Path) -> Iterator[None]:
    """Mounts it at `path`, which is made, and takes it away again.

    Raises:
      OSError: it cannot be mounted.
    """
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tfrun-drill", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        # Whoever still writes there keeps it until he ends.
        subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)


def fill(path: Path) -> None:
    """Leaves no room on it."""
    with (path / "filled").open("wb", buffering=0) as file:
        for chunk in (_CHUNK, _CHUNK[:4096], b"x"):
            with contextlib.suppress(OSError):
                while file.write(chunk):
                    pass
