"""Shows a job on the terminal: the chief's output, live, and tfrun's own lines."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Any, TextIO

from tfrun.job.reports import FitEnd, Report, Skipped, Training
from tfrun.observe.event_lines import training_key, training_line
from tfrun.observe.live_block import GetStatus
from tfrun.observe.terminal_writer import OWN, TerminalWriter

# Of one that has begun: from the line's start, and whole when the exception's own line is there.
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_WHOLE_TRACEBACK = re.compile(r"[^\n]*\n(?:[ \t][^\n]*\n|\n)*\S[^\n]*\n")


class Terminal:
    """What of a job's output is shown, and with which lines of tfrun's own."""

    def __init__(self, *, prefix_all: bool, chief: str) -> None:
        self._fit: FitEnd | None = None
        self._skipped: set[tuple[int, int]] = set()
        self._prefix_all, self._chief = prefix_all, chief
        self._partial: dict[tuple[str, str], str] = {}
        self._half: dict[str, str] = {}  # tracebacks of which more is to come, by task
        self._writer = TerminalWriter()
        self._muted = False
        self._training: Any = None
        self.is_live = False

    def show_live(self, status: GetStatus) -> None:
        """From now on shows a block with the job's status below all that is printed.

        `status` gives it, in another thread.
        """
        self.is_live = True
        self._writer.show_live(status)

    def output(self, task: str, stream: str, text: str) -> None:
        """Shows a piece of a worker's output."""
        if self._muted and stream == "stderr":
            return
        if stream == "stderr":
            text = self._without_half_a_traceback(task, text)
        self._show(task, stream, text)

    def _show(self, task: str, stream: str, text: str) -> None:
        if self._prefix_all or self.is_live:
            text = self._whole_lines(task, stream, text)
        if text:
            self._writer.write(_file(stream), text)

    def report(self, task: str, report: Report) -> None:
        """Remembers what the summary needs, and says with what a training begins."""
        match report:
            case FitEnd() if task == self._chief:
                self._fit = report
            case Training() if task == self._chief and training_key(report) != self._training:
                # Not again for each `fit`, nor in the next round.
                self._training = training_key(report)
                self.notice(training_line(report))
            case Skipped():
                # Another worker, or a later round, may have met the same sample again.
                self._skipped.add((report.source, report.sample))

    @property
    def summary(self) -> dict[str, Any]:
        """What the lines after the job say of its training."""
        return {**(vars(self._fit) if self._fit else {}), "skipped": len(self._skipped)}

    def notice(self, text: str) -> None:
        """Shows one line of tfrun's own on standard error."""
        self._writer.notice(sys.stderr, f"{OWN}{text}\n")

    def mute_errors(self) -> None:
        """Shows no standard error until the next round; the logs have it."""
        self._muted = True
        self._half.clear()

    def next_round(self) -> None:
        """Shows standard error again; lines that the last round has cut off are written."""
        self._muted = False
        self._write_partial_lines()

    def close(self) -> None:
        """Writes all that is left."""
        self._write_partial_lines()
        self._writer.close(end_line=None if self._prefix_all else sys.stderr)
        for file in filter(None, (sys.stdout, sys.stderr)):
            drop_unwritten(file)

    def _without_half_a_traceback(self, task: str, text: str) -> str:
        """Holds back a traceback that is still being written: the job's end may cut it off."""
        text = self._half.pop(task, "") + text
        *_, last = [None, *_TRACEBACK.finditer(text)]
        if last and not _WHOLE_TRACEBACK.match(text, last.start()):
            self._half[task] = text[last.start() :]
            return text[: last.start()]
        return text

    def _write_partial_lines(self) -> None:
        for task, half in self._half.items():
            self._show(task, "stderr", half)
        self._half.clear()
        for (task, stream), text in self._partial.items():
            if text:
                line = f"{self._prefix(task)}{_last_state(text)}\n"
                self._writer.write(_file(stream), line)
        self._partial.clear()

    def _prefix(self, task: str) -> str:
        return f"[{task.replace(':', ' ')}] " if self._prefix_all else ""

    def _whole_lines(self, task: str, stream: str, text: str) -> str:
        """Whole lines, maybe with the task's name; of one redrawn with \\r only its last state."""
        text = self._partial.get((task, stream), "") + text
        *lines, rest = text.split("\n")
        # A \r at the end does not erase yet: the next piece may be the line's end.
        self._partial[task, stream] = _last_state(rest) + "\r" * rest.endswith("\r")
        return "".join(f"{self._prefix(task)}{_last_state(line)}\n" for line in lines)


def drop_unwritten(file: TextIO) -> None:
    """Forgets what a reader that has gone did not read: Python would fail at its end, with 120."""
    try:
        file.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, file.fileno())
            os.close(nowhere)


def _file(stream: str) -> TextIO | None:
    return sys.stdout if stream == "stdout" else sys.stderr


def _last_state(line: str) -> str:
    """Returns what a terminal shows of a line that was redrawn with \\r."""
    return line.rstrip("\r").rpartition("\r")[2]
