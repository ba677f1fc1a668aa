"""How the others of a group find its launcher: what they need, and a file that says it.

Only the file's owner can read it, and it is gone when the job is: neither the arguments nor the
environment of any process ever have the token.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from tfrun.control import tls


@dataclass(frozen=True, kw_only=True)
class Found:
    """Where the launcher is, and what it wants to see.

    Attributes:
      url: its control port.
      token: the job's secret.
      certificate: the only one to trust there, in PEM; "" is without TLS.
    """

    url: str
    token: str
    certificate: str = ""

    @property
    def tls(self) -> dict[str, Any] | None:
        """As `control.tls.trusting` takes it."""
        return tls.only(self.certificate)


class Meeting(Protocol):
    """How the others of a group find the launcher.

    Attributes:
      port: the control port; 0 is any free one.
      token: the job's secret if it is given, "" for one of the launcher's making.
      why: what those that do not come may wait for, as one clause.
    """

    port: int
    token: str
    why: str

    def announce(self, port: int, token: str, certificate: str = "") -> None:
        """Says where the launcher is, and its certificate in PEM; OSError when it cannot."""
        ...

    def find(self) -> Found | None:
        """Returns where the launcher is; None when it is not there yet."""
        ...

    def close(self) -> None:
        """Takes back what `announce` has left."""
        ...


class FileMeeting:
    """A meeting by a file in a directory that all see."""

    def __init__(self, path: Path, host: str = "", why: str = "") -> None:
        """Args:
        path: the file.
        host: this machine, as the others know it: what the launcher says of itself.
        why: what those that do not come may wait for.
        """
        self.path, self._host, self.why = path, host, why
        self.port, self.token = 0, ""

    def announce(self, port: int, token: str, certificate: str = "") -> None:
        self.path.unlink(missing_ok=True)
        new = self.path.with_name(f"{self.path.name}-{os.getpid()}")
        url = f"{'https' if certificate else 'http'}://{self._host}:{port}"
        # O_EXCL: nobody else has opened it before it was ours alone.
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(asdict(Found(url=url, token=token, certificate=certificate)), file)
        new.replace(self.path)

    def find(self) -> Found | None:
        with contextlib.suppress(OSError):
            os.listdir(self.path.parent)  # noqa: PTH208 (has NFS look again)
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with os.fdopen(fd) as file:
            if os.fstat(fd).st_uid != os.getuid():
                return None  # somebody else's: he would get to say what we run
            return Found(**json.load(file))

    def close(self) -> None:
        self.path.unlink(missing_ok=True)
