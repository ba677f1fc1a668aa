"""A lease on a name in object storage: who holds it renews it; who has died loses it.

An object says who holds it, and changes with each renewal. Nobody's clock is compared with
another's: a lease that has not changed for `STALE_SECONDS` while somebody looked at it is over. A
holder on this machine whose process is gone is known at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import psutil

from tfrun.job.errors import TfrunError
from tfrun.storage.objects import Objects

RENEW_SECONDS = 8.0
STALE_SECONDS = 30.0
LOOK_SECONDS = 1.0
SETTLE_SECONDS = 0.5  # in which another one that took over at the same moment would be seen


class Stand(Enum):
    """How a lease stands: nobody's, held, over, or not known yet (look again in a second)."""

    FREE = "free"
    HELD = "held"
    GONE = "gone"
    UNKNOWN = "unknown"


class Watch:
    """Looks at a lease again and again, until it is clear whether its holder lives."""

    def __init__(self, objects: Objects, name: str) -> None:
        self._objects, self._name = objects, name
        self._seen, self._since = b"", 0.0
        self.who, self.stand = "", Stand.UNKNOWN  # who holds it, for people, as of the last look

    def look(self) -> Stand:
        """Raises: TfrunError: TFRUN-704."""
        self.stand = self._look()
        return self.stand

    def _look(self) -> Stand:
        try:
            found = self._objects.read(self._name)
        except FileNotFoundError:
            return Stand.FREE
        told = _told(found)
        self.who = str(told.get("who", ""))
        is_first, has_changed = not self._seen, found != self._seen
        if has_changed:
            self._seen, self._since = found, time.monotonic()
        if told.get("machine") == _machine():
            return Stand.HELD if _lives(told) else Stand.GONE
        if has_changed and not is_first:
            return Stand.HELD
        return Stand.GONE if time.monotonic() - self._since > STALE_SECONDS else Stand.UNKNOWN

    def until_known(self, tell: Callable[[], object]) -> Stand:
        """Looks until it is known, for `STALE_SECONDS` at most; tells of it when it begins."""
        if self.look() is Stand.UNKNOWN:
            tell()
        while self.stand is Stand.UNKNOWN:
            time.sleep(LOOK_SECONDS)
            self.look()
        return self.stand


class Lease:
    """A lease of this process's, renewed by a thread until it is released.

    Args:
      objects: the storage.
      name: of its object.
      token: what the object shows it by; one of its own by default.
    """

    def __init__(self, objects: Objects, name: str, token: str = "") -> None:
        self._objects, self._name = objects, name
        self.token = token or uuid.uuid4().hex
        self._watch, self._renewals = Watch(objects, name), 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def watch(self) -> Watch:
        """What it has seen of another holder."""
        return self._watch

    def acquire(self) -> bool:
        """Returns whether it is this process's; does not wait for another holder's end.

        Raises:
          TfrunError: TFRUN-704.
        """
        if self._thread is not None:
            return True
        stand = self._watch.look()
        if stand in (Stand.HELD, Stand.UNKNOWN):
            return False
        if stand is Stand.GONE:
            self._objects.remove([self._name])
        self._objects.create(self._name, self._content())
        if stand is Stand.GONE:
            time.sleep(SETTLE_SECONDS)
        # Whatever `create` says: its answer may have been lost, and the next try found our own.
        if not is_held(self._objects, self._name, self.token):
            return False
        self._thread = threading.Thread(target=self._renew, name="tfrun lease", daemon=True)
        self._thread.start()
        return True

    @property
    def holds(self) -> bool:
        """Whether it has been acquired and nobody has taken it since. TFRUN-704 as above."""
        return self._thread is not None and is_held(self._objects, self._name, self.token)

    def release(self) -> None:
        """Gives it back; an error of the storage leaves it to become old."""
        if self._thread is None:
            return
        self._ended.set()
        self._thread.join(RENEW_SECONDS)
        self._thread = None
        with contextlib.suppress(TfrunError):
            if is_held(self._objects, self._name, self.token):
                self._objects.remove([self._name])

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            with contextlib.suppress(TfrunError):  # the next time
                if is_held(self._objects, self._name, self.token) and not self._ended.is_set():
                    self._renewals += 1
                    self._objects.write(self._name, self._content())

    def _content(self) -> bytes:
        process = psutil.Process()
        told = {
            "who": f"process {os.getpid()} on {socket.gethostname()}",
            "token": self.token,
            "machine": _machine(),
            "pid": process.pid,
            "started": process.create_time(),
            "renewals": self._renewals,
        }
        return json.dumps(told).encode()


def is_held(objects: Objects, name: str, token: str) -> bool:
    """Whether the lease is the one of this token.

    Raises:
      TfrunError: TFRUN-704.
    """
    try:
        return _told(objects.read(name)).get("token") == token
    except FileNotFoundError:
        return False


def _told(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _machine() -> str:
    """The same for processes that see each other's numbers, and for no others."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return f"unknown {uuid.getnode()} {socket.gethostname()} {psutil.boot_time():.0f}"


def _lives(told: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(int(told["pid"]))
        return (
            abs(process.create_time() - float(told["started"])) < 1.0
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except (psutil.Error, KeyError, TypeError, ValueError):
        return False
