"""How processes that were started together find their launcher: by what they know, or a file.

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

from tfrun.control.protocol import tls
from tfrun.job import files


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
        """As `protocol.tls.trusting` takes it."""
        return tls.only(self.certificate)


class Discovery(Protocol):
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


class FileDiscovery:
    """The launcher says where it is in a file that all see."""

    def __init__(self, path: Path, host: str = "", why: str = "") -> None:
        """Args:
        path: the file.
        host: this machine, as the others know it: what the launcher says of itself.
        why: what those that do not come may wait for.
        """
        self.path, self._host, self.why = path, host, why
        self.port, self.token = 0, ""

    def announce(self, port: int, token: str, certificate: str = "") -> None:
        url = f"{'https' if certificate else 'http'}://{self._host}:{port}"
        found = Found(url=url, token=token, certificate=certificate)
        files.write_private(self.path, json.dumps(asdict(found)))

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
