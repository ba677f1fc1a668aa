"""Files in shared memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def allocate(path: Path, size: int) -> bool:
    """Makes a file of `size` zero bytes that only this user may read; False without room for it.

    A file that is there already is no room.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        # Memory that is promised and not there would end a worker by SIGBUS.
        os.posix_fallocate(fd, 0, size)
    except (OSError, AttributeError):
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(fd)
    return True
