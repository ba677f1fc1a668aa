"""Copies the logs of machines that do not share the launcher's disk.

The launcher leaves a file in its logs/. An agent that finds it shares the disk, and has nothing to
send; it looks each time, for a shared disk may show a new file late.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tfrun.control.protocol import messages
from tfrun.job import files
from tfrun.job.full_disk_appender import Appender, in_a_log

PIECE_BYTES = 1 << 16
SEND_SECONDS = 0.5
MOST_PIECES = 16  # at once: a megabyte, twice a second
LAST_PIECES = 128  # when the job is over
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,250}\.log")


def marker(logs: Path, token: str) -> Path:
    """Returns the file by which an agent sees that it shares the launcher's disk.

    Args:
      logs: the job's directory for logs.
      token: the job's secret, of which the name tells nothing.
    """
    return logs / f".shared-{hashlib.sha256(f'logs/{token}'.encode()).hexdigest()[:16]}"


@contextlib.contextmanager
def marked(logs: Path, token: str) -> Iterator[None]:
    """Leaves the launcher's mark while the job runs."""
    path = marker(logs, token)
    with contextlib.suppress(OSError):  # a full disk; then the marks are not missed either
        logs.mkdir(parents=True, exist_ok=True)
        path.touch()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


class Copies:
    """Writes what agents have sent to the ends of the files of those names."""

    def __init__(self, logs: Path, say: Callable[[str], None]) -> None:
        """Args:
        logs: the job's directory for logs.
        say: tells a person that a file is not written, and that it is again.
        """
        self._logs, self._say = logs, say
        self._lacking: dict[str, Appender] = {}  # only these stay open: there may be thousands

    def append(self, log: messages.Log) -> None:
        if not _NAME.fullmatch(log.name):
            return
        with contextlib.suppress(OSError):
            file = self._lacking.pop(log.name, None)
            file = file or Appender(self._logs / log.name, in_a_log, self._say)
            file.add(log.text.encode("utf-8", "replace"))
            if file.lacks:
                self._lacking[log.name] = file
            else:
                file.close()


@dataclass(eq=False)
class _Read:
    """How far a file has been read."""

    offset: int
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )


class RemoteLogs:
    """What is new in the log files of this machine."""

    def __init__(self, logs: Path, token: str) -> None:
        """What is there already was sent by an agent before this one, or is another job's.

        Args:
          logs: the job's directory for logs, on this machine.
          token: the job's secret.
        """
        self._logs, self._marker = logs, marker(logs, token)
        self._files = {path.name: _Read(path.stat().st_size) for path in logs.glob("*.log")}

    def news(self, pieces: int = MOST_PIECES) -> Iterator[messages.Log]:
        """Yields what has been written since the last time, so many pieces at most."""
        if self._marker.exists():
            return
        with contextlib.suppress(OSError):
            for path in sorted(self._logs.glob("*.log")):
                with files.to_read(path) as file:
                    read = self._files.setdefault(path.name, _Read(0))
                    file.seek(read.offset)
                    while pieces and (data := file.read(PIECE_BYTES)):
                        pieces -= 1
                        read.offset += len(data)
                        yield messages.Log(name=path.name, text=read.decoder.decode(data))
