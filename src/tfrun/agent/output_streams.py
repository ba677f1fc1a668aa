"""Writes what workers print to their log files, and passes it on to whoever shows it."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import errno
import os
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path

from tfrun.job.full_disk_appender import Appender, in_a_log

# TensorFlow's and its libraries' C++ log lines (absl and the older format), I to E: what is
# fatal stays visible. They are in the log file in any case.
NOISE = re.compile(
    r"(?:[IWE]\d{4} \d\d:\d\d:\d+\.\d+\s+\d+ \S+:\d+\]"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] \S+:\d+\]"
    r"|WARNING: All log messages before absl::InitializeLog\(\)"
    r"|/job:\w+/replica:\d+/task:\d+$"  # continues the coordination service's lines
    # The same line goes on: what it says of a peer's end, and what is attached to its status.
    r"|The tasks have crashed\. Check the task logs"
    r"|The error could be from a previous operation\. Restart your program to reset\."
    r"|\t \[\[\{\{node .*\[type\.googleapis\.com/tensorflow\."
    r"|INFO:tensorflow:"
    r"|To enable the following instructions: .* rebuild TensorFlow)"
)
# The rest of a message, which is noise where its beginning is: where in a graph it happened, and
# what gRPC says of a server that has been replaced.
_REST = re.compile(
    r"\t \[\[\{\{.*\}\}\]\]"
    r"|Additional GRPC error information from remote target /job:.*"
    r"|:[A-Z_]+:Error received from peer .*"
)
# What a server says of the options of its session goes on for many lines of a protocol buffer,
# and ends with an empty one.
_OPTIONS = " SessionOptions: "
_FIELD = re.compile(r"\w+ \{|\w+: .+|\s+.*|\}|")
# What may still become such a line when its rest arrives.
_MAYBE_NOISE = re.compile(
    r"(?:[IWE](?:\d{0,4}|\d{4} [^\r]*)"
    r"|\d{1,4}|\d{4}-[\d-]{0,5}|\d{4}-\d\d-\d\d [^\r]*"
    r"|:[A-Z_]*(?::[^\r]*)?)"
)
_NOISE_STARTS = (
    "WARNING: All log messages before absl::InitializeLog()",
    "INFO:tensorflow:",
    "To enable the following instructions:",
    "/job:",
    "The tasks have crashed. Check the task logs",
    "The error could be from a previous operation. Restart",
    "\t [[{{",
    "Additional GRPC error information from remote target",
)
TAIL_LINES = 25
TAIL_CHARACTERS = 8192
CRASH = "Fatal Python error: "
CRASH_CHARACTERS = 1 << 16
_FRAME = re.compile(r'  File "(?P<file>[^"\n]+)", line \d+ in .+')
_LIBRARIES = (
    f"{Path(__file__).parents[1]}/",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")),
)
CLOSING_READS = 64  # of 64 KB: a pipe holds less, but somebody may still be writing


class NoiseFilter:
    """Lets text pass except for whole lines of TensorFlow's own logging."""

    def __init__(self) -> None:
        self._held = ""
        self._within_line = self._after_noise = self._after_options = False

    def feed(self, text: str) -> str:
        """Returns what may be shown now; holds back a line's start that may become noise."""
        text, self._held = self._held + text, ""
        *lines, last = text.split("\n")
        shown = []
        for line in lines:
            # The rest of a line that is on the screen already belongs to it.
            self._after_noise = not self._within_line and self._is_noise(line)
            if not self._after_noise:
                shown.append(line + "\n")
            self._within_line = False
        if not self._within_line and (_may_become_noise(last) or self._may_be_field(last)):
            self._held = last
        elif last:
            shown.append(last)
            self._within_line = True
        return "".join(shown)

    def flush(self) -> str:
        held, self._held = self._held, ""
        return "" if self._is_noise(held) else held

    def _is_noise(self, line: str) -> bool:
        if NOISE.match(line):
            self._after_options = _OPTIONS in line
            return True
        if self._after_options and _FIELD.fullmatch(line):
            self._after_options = line != ""
            return True
        self._after_options = False
        return bool(self._after_noise and _REST.fullmatch(line))

    def _may_be_field(self, text: str) -> bool:
        return self._after_options and "\r" not in text and text != ""


def _may_become_noise(text: str) -> bool:
    if not text or "\r" in text:  # a progress bar is redrawn and never gets its newline
        return False
    known = any(text.startswith(start) or start.startswith(text) for start in _NOISE_STARTS)
    return known or _MAYBE_NOISE.fullmatch(text) is not None


def in_short(dump: str) -> str:
    """Returns what a crash says in short: the error, where it happened, and the script's line.

    Args:
      dump: what faulthandler has written, of all threads; may be cut off.
    """
    error, *lines = dump.splitlines()
    threads: list[list[str]] = []
    current = None
    for line in lines:
        if line.startswith(("Thread 0x", "Current thread 0x")):
            threads.append([])
            current = threads[-1] if line.startswith("Current") else current
        elif _FRAME.fullmatch(line) and threads:
            threads[-1].append(line)
    # A thread of TensorFlow's own has no Python: then the main thread tells, which comes last.
    stack = current or (threads[-1] if threads else [])
    script = next((frame for frame in stack[1:] if _is_scripts(frame)), "")
    return "\n".join(line for line in (error, *stack[:1], script) if line) + "\n"


def _is_scripts(frame: str) -> bool:
    found = _FRAME.fullmatch(frame)
    file = found["file"] if found else "<"
    parts = set(Path(file).parts)
    return not file.startswith(("<", *_LIBRARIES)) and not parts & {
        "site-packages",
        "dist-packages",
    }


class WorkerLog:
    """A worker's log, appended to by both of its streams, over a full disk as well."""

    def __init__(self, path: Path, complain: Callable[[str], None]) -> None:
        self._file: Appender | None = None
        try:
            self._file = Appender(path, in_a_log, complain)
        except OSError as error:
            complain(f"{path} is not written: {error.strerror}")

    def write(self, data: bytes) -> None:
        if self._file:
            self._file.add(data)

    def close(self) -> None:
        if self._file:
            self._file.close()


class OutputPump:
    """Moves one stream of a worker from its pipe (or terminal) to its log and to `show`.

    Attributes:
      closed: set when the worker, and all that it left behind, has closed the stream.
      muted: nothing is shown for now.
    """

    def __init__(
        self,
        fd: int,
        log: WorkerLog,
        show: Callable[[str], None] | None,
        *,
        hide_noise: bool,
        muted: bool = False,
    ) -> None:
        self._fd, self._log, self._show = fd, log, show
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._filter = NoiseFilter() if hide_noise else None
        self._tail, self._crash = "", ""
        self.muted = muted
        self.closed = asyncio.Event()
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read)

    @property
    def tail(self) -> str:
        """The last lines, without noise."""
        text = self._tail + (in_short(self._crash) if self._crash else "")
        return "".join(text.splitlines(keepends=True)[-TAIL_LINES:])

    def hide(self) -> None:
        """From now on writes to the log only."""
        self._show = None

    def turn(self, log: WorkerLog, show: Callable[[str], None] | None) -> None:
        """From now on writes to another log, and shows what comes, or nothing."""
        self._read_the_rest()
        self._log, self._show, self.muted = log, show, False

    def unmute(self) -> None:
        """Shows what comes from now on; what was written before stays hidden."""
        if self.muted:
            self._read_the_rest()
            self.muted = False

    def close(self) -> None:
        """Reads what is still there and lets go."""
        if self.closed.is_set():
            return
        self._read_the_rest()
        self._end()

    def _read_the_rest(self) -> None:
        for _ in range(CLOSING_READS):
            if self.closed.is_set() or not self._read():
                break

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:  # how a terminal says that its other side has closed
                raise
            data = b""
        if not data:
            self._end()
            return False
        self._log.write(data)
        text = self._decoder.decode(data)
        self._emit(self._filter.feed(text) if self._filter else text)
        return True

    def _emit(self, text: str) -> None:
        if not text:
            return
        self._remember(text)
        if self._show and not self.muted:
            self._show(text)

    def _remember(self, text: str) -> None:
        """Keeps the end, but for a crash's long list of threads, which has a place of its own."""
        if self._crash:
            self._crash = (self._crash + text)[:CRASH_CHARACTERS]
            return
        self._tail = (self._tail + text)[-TAIL_CHARACTERS:]
        begin = f"\n{self._tail}".find(f"\n{CRASH}")
        if begin >= 0:
            self._tail, self._crash = self._tail[:begin], self._tail[begin:]

    def _end(self) -> None:
        if self.closed.is_set():
            return
        rest = self._decoder.decode(b"", final=True)
        if self._filter:
            rest = self._filter.feed(rest) + self._filter.flush()
        self._emit(rest)
        asyncio.get_running_loop().remove_reader(self._fd)
        with contextlib.suppress(OSError):
            os.close(self._fd)
        self.closed.set()
