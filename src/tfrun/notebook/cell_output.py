"""Shows a job's output where it cannot write itself: in a notebook's cell, or to pytest."""

from __future__ import annotations

import codecs
import contextlib
import re
import sys
import time
from typing import TextIO

REDRAW_SECONDS = 0.5  # between two states of a progress bar
# Escape sequences: colors, cursor, titles.
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_HALF = re.compile(r"\x1b[^\x07@-Z\\^-~]*\Z")


def job_can_write() -> bool:
    """Whether this process's output goes where that of a child process would go."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        try:
            if stream is not getattr(sys, f"__{name}__") or stream.fileno() != number:
                return False
        except (AttributeError, OSError, ValueError):
            return False
    return True


def redraws(stream: TextIO | None) -> bool:
    r"""Whether \r begins a line anew there, as in a notebook's cell."""
    return type(stream).__module__.partition(".")[0] in ("ipykernel", "google", "pyodide_kernel")


class Cell:
    """Writes whole lines, without terminal control codes; and, in a cell, one that is redrawn."""

    def __init__(self, stream: TextIO | None, *, redraw: bool) -> None:
        r"""Args:
        stream: where to write; None is nowhere.
        redraw: \r begins a line anew there.
        """
        self._stream, self._redraw = stream, redraw
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest, self._drawn, self._when = "", "", 0.0

    def feed(self, data: bytes) -> None:
        """Takes a piece of output."""
        text = self._rest + self._decoder.decode(data)
        *lines, self._rest = text.split("\n")
        for line in lines:
            self._end_line(line)
        if self._redraw and self._rest and time.monotonic() - self._when >= REDRAW_SECONDS:
            self._draw(_last_state(_HALF.sub("", self._rest)))
        if lines or self._drawn:
            self._write("", flush=True)

    def close(self) -> None:
        """Writes the rest; what comes then begins a line."""
        self._rest += self._decoder.decode(b"", final=True)
        if self._rest or self._drawn:
            self._end_line(self._rest)
            self._rest = ""
        self._write("", flush=True)

    def _end_line(self, line: str) -> None:
        self._draw(_last_state(line))
        self._write("\n")
        self._drawn, self._when = "", 0.0

    def _draw(self, text: str) -> None:
        if text == self._drawn:
            return
        begin = "\r" if self._drawn else ""
        self._write(begin + text.ljust(len(self._drawn)))
        self._drawn, self._when = text, time.monotonic()

    def _write(self, text: str, *, flush: bool = False) -> None:
        # Where the reader has gone (`| head`), the job goes on; its logs have all.
        with contextlib.suppress(OSError, ValueError):
            if self._stream is not None:
                self._stream.write(text)
                if flush:
                    self._stream.flush()


def _last_state(line: str) -> str:
    """What a terminal shows of a line in which the cursor went back."""
    shown = _CONTROL.sub("", line).rstrip("\r").rpartition("\r")[2]
    *_, last = re.split("\x08+", shown)  # Keras goes back to the line's start in that way
    return "".join(c for c in last if c == "\t" or c >= " ")
