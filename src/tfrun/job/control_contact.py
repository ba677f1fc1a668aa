"""The file control.json, which says how to reach a running job; only its user can read it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfrun.job import files

if TYPE_CHECKING:
    import ssl

NAME = "control.json"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class Contact:
    """Where a job listens, and what it wants to be shown.

    Attributes:
      host: the name of the launcher's machine.
      pid: the launcher's process there.
      address: where it listens: an address of that machine, or "0.0.0.0" for all of them.
      port: the control port.
      token: the status token. It is not the agents': nobody joins the job with it.
      tls: the port's certificate, as PEM; None without TLS.
    """

    host: str
    pid: int
    address: str
    port: int
    token: str
    tls: str | None = None

    @property
    def is_here(self) -> bool:
        """Whether the launcher is on this machine."""
        return self.host == socket.gethostname()

    @property
    def is_gone(self) -> bool:
        """Whether the launcher is known not to run any more."""
        if not self.is_here:
            return False
        try:
            os.kill(self.pid, 0)
        except OSError as error:
            return isinstance(error, ProcessLookupError)
        return False

    @property
    def url(self) -> str | None:
        """Where to ask; None where the port is not reached from this machine."""
        anywhere = self.address in ("0.0.0.0", "::", "")
        if self.is_here:
            address = "127.0.0.1" if anywhere else self.address
        elif self.address in LOOPBACK:
            return None
        else:
            address = self.host if anywhere else self.address
        shown = f"[{address}]" if ":" in address else address
        return f"{'https' if self.tls else 'http'}://{shown}:{self.port}"

    def link(self, key: str) -> str:
        """Returns the page's address, for a person on this machine or another one.

        `key` lets one browser in, once.
        """
        port = self.url if self.address in LOOPBACK else None
        scheme = "https" if self.tls else "http"
        return f"{port or f'{scheme}://{self.host}:{self.port}'}/?key={key}"


def trusting(pem: str) -> ssl.SSLContext:
    """Returns the client's side of TLS for one certificate, whatever the name in it."""
    import ssl  # not above: a worker's process needs none

    context = ssl.create_default_context(cadata=pem)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # this one, whoever has signed it
    context.check_hostname = False
    return context


def write(run_dir: Path, contact: Contact) -> None:
    """Writes the file, whole, for this user's eyes only."""
    with contextlib.suppress(OSError):  # a full disk: nobody can ask the job, which runs
        files.write_private(run_dir / NAME, json.dumps(asdict(contact)))


@contextlib.contextmanager
def shown(run_dir: Path, contact: Contact) -> Iterator[None]:
    """While it lasts the run directory tells how the job is reached."""
    write(run_dir, contact)
    try:
        yield
    finally:
        if read(run_dir) == contact:  # else another job has put its own there
            with contextlib.suppress(OSError):
                (run_dir / NAME).unlink()


def read(run_dir: Path) -> Contact | None:
    """Returns what the run directory says; None when no job runs there, or it is not ours."""
    try:
        found = Contact(**json.loads(files.read(run_dir / NAME)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    texts = (found.host, found.address, found.token, found.tls or "")
    whole = all(isinstance(text, str) for text in texts)
    numbers = (found.pid, 1 << 31), (found.port, 1 << 16)
    whole = whole and all(type(value) is int and 0 < value < most for value, most in numbers)
    return found if whole else None  # else it is damaged
