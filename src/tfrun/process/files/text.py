"""Text that a script writes: seen where it is flushed, and in whole lines where several append."""

from __future__ import annotations

import io
import os
from typing import Any

from tfrun.process.files.rules import whole_lines
from tfrun.process.files.versions import Version

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class Text(io.TextIOWrapper):
    """The text of a file; what the script flushes it wants to be seen."""

    def __init__(self, raw: Version | Lines, *args: Any, **options: Any) -> None:
        self._raw_file = raw
        super().__init__(*args, **options)

    def flush(self) -> None:
        super().flush()
        self._raw_file.show()


class Lines(io.FileIO):
    """The raw file of text that is appended to one of several writers: by whole lines.

    Attributes:
      kept_from: the path that it is kept from, because only the chief appends there; "" for none.
    """

    _held, kept_from = b"", ""

    def lead(self) -> None:
        """Appends from now on what it was kept from: this worker has become the chief."""
        if self.kept_from and not self.closed:
            file = os.open(self.kept_from, APPEND, 0o666)
            try:
                os.dup2(file, self.fileno(), inheritable=False)
            finally:
                os.close(file)
            self.kept_from = ""

    def write(self, data: Any, /) -> int:
        data = self._held + bytes(data)
        end = whole_lines(data)
        kept = len(self._held)
        self._held = b""
        self._write_all(data[:end])
        self._held = data[end:]
        return len(data) - kept

    def show(self) -> None:
        """Writes the beginning of a line too."""
        if not self.closed and self._held:
            held, self._held = self._held, b""
            self._write_all(held)

    def close(self) -> None:
        try:
            self.show()
        finally:
            super().close()

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[super().write(data) or 0 :]
