"""The file with a job's token, which only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from tfrun.job.errors import UsageError

LEAST_CHARACTERS = 16
MAX_BYTES = 4096


def read(path: Path) -> str:
    """Returns the token in a file.

    Raises:
      UsageError: TFRUN-105 when it cannot be read, others may read it, or it holds no token.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(MAX_BYTES + 1)
        text = content.decode("ascii").strip()
    except OSError as error:
        raise _refuse(path, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _refuse(path, "holds no token") from None
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise _refuse(path, "can be read by others", f"Run chmod 600 {path}")
    if len(content) > MAX_BYTES or not text.isprintable() or len(text.split()) != 1:
        raise _refuse(path, "holds no token")
    if len(text) < LEAST_CHARACTERS:
        raise _refuse(path, f"has a token of less than {LEAST_CHARACTERS} characters")
    return text


def read_or_make(path: Path) -> str:
    """Returns the token in a file, which is made when it is not there.

    Raises:
      UsageError: TFRUN-105, as for `read`, or when it cannot be written.
    """
    token = secrets.token_urlsafe(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read(path)
    except OSError as error:
        raise _refuse(path, f"cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return token


def _refuse(path: Path, problem: str, fix: str = "") -> UsageError:
    expected = "a file with the token that tfrun serve has written, which only you may read"
    return UsageError(
        "TFRUN-105",
        f"{str(path)!r:.200} {problem}",
        where="--token-file",
        expected=expected,
        fix=fix,
    )
