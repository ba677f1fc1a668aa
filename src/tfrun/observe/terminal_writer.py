"""Writes what a terminal shows in a thread of its own; lines of tfrun's own break no other line."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass, replace
from typing import TextIO

from tfrun.observe.live_block import SECONDS, GetStatus, Screen

OWN = "tfrun: "  # with it a line of tfrun's own begins
# `print("a", b)` writes piece by piece where Python does not buffer, as in workers. The rest of
# such a line follows at once; that of a progress bar does not.
PATIENCE_SECONDS = 0.2


class TerminalWriter:
    """A queue of text, and the thread that writes it: a blocked `| less` must not block the job."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Text | GetStatus | None] = queue.SimpleQueue()
        self._screen: Screen | None = None
        self._unfinished: TextIO | None = None  # where the last line that was written has no end
        self._held: list[_Text] = []  # until that line has its end
        self._patience = 0.0  # when they are written in any case: time.monotonic()
        self._thread = threading.Thread(target=self._run, name="terminal", daemon=True)
        self._thread.start()

    def write(self, file: TextIO | None, text: str) -> None:
        """Shows a piece of a worker's output; None for a file that is closed, as with `>&-`."""
        self._queue.put(_Text(file, text, text.startswith(OWN)))

    def notice(self, file: TextIO | None, text: str) -> None:
        """Shows whole lines of tfrun's own, where no line of a worker is half written."""
        self._queue.put(_Text(file, text, own=True, of_a_worker=False))

    def show_live(self, status: GetStatus) -> None:
        """From now on shows a block with the job's status below all that is written."""
        self._queue.put(status)

    def close(self, *, end_line: TextIO | None = None) -> None:
        """Writes all that is left, and to `end_line` the end that the last line lacks."""
        self._queue.put(None)
        self._thread.join()
        if self._unfinished and end_line:
            _write(end_line, "\n")

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=self._seconds())
            except queue.Empty:
                item = _Text(None, "")
            if item is None:
                break
            if isinstance(item, _Text):
                self._take(item)
            with contextlib.suppress(OSError, ValueError):  # the reader has gone
                if not isinstance(item, _Text):
                    self._screen = Screen(item)
                elif self._screen:
                    self._screen.refresh()
        self._show_held()
        if self._screen:
            with contextlib.suppress(OSError, ValueError):
                self._screen.close()

    def _seconds(self) -> float | None:
        if self._held:
            return max(0.0, self._patience - time.monotonic())
        return SECONDS if self._screen else None

    def _take(self, text: _Text) -> None:
        """Shows `text`, or holds it until another's unfinished line has its end."""
        if self._breaks_a_line(text):
            if not self._held:
                self._patience = time.monotonic() + PATIENCE_SECONDS
            self._held.append(text)
        else:
            self._show(text)
        if self._held and (self._unfinished is None or time.monotonic() >= self._patience):
            self._show_held()

    def _breaks_a_line(self, text: _Text) -> bool:
        if self._unfinished is None or (text.of_a_worker and text.file is self._unfinished):
            return False  # of a worker's one stream nothing overtakes anything
        return text.own or bool(self._held)

    def _show_held(self) -> None:
        held, self._held = self._held, []
        for text in held:
            self._show(text)

    def _show(self, text: _Text) -> None:
        if text.file is None or not text.text:
            return
        if text.own and self._unfinished is not None:
            self._unfinished = None
            self._show(replace(text, text="\n", own=False))  # below a progress bar, not at its end
        shown = _encodable(text.text, text.file.encoding)
        if self._screen:
            with contextlib.suppress(OSError, ValueError):  # the reader has gone; logs have all
                self._screen.show(text.file, shown)
        else:
            _write(text.file, shown)
        self._unfinished = None if shown.endswith("\n") else text.file


@dataclass(frozen=True)
class _Text:
    file: TextIO | None
    text: str
    own: bool = False
    of_a_worker: bool = True


def _write(file: TextIO, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the reader has gone; logs have all
        file.write(text)
        file.flush()


def _encodable(text: str, encoding: str | None) -> str:
    """Replaces what a terminal's encoding lacks: better a ? in a progress bar than no output."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
