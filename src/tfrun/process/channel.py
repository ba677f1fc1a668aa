"""The connection between a worker's process and its agent: JSON lines over a socket pair.

Up go the reports of job/reports.py, down come single words ("release", "go", "leave",
"save", "regroup", "keep"), one with a text after it ("ended"). In a process that tfrun did not
start there is no line and `emit` does nothing.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from tfrun.job.reports import Report, encode

_line: socket.socket | None = None
_owner: int | None = None
_unsent = b""
_sending = threading.RLock()  # a signal handler may report while a report is on its way
_listener: threading.Thread | None = None
_heard = threading.Condition()
_words: set[str] = set()
_texts: dict[str, str] = {}
_actions: dict[str, Callable[[], None]] = {}
_is_deaf = False


def open_channel(fd: int) -> None:
    """Takes over the socket `fd` as this process's line."""
    global _line, _owner, _unsent, _listener, _is_deaf
    _line, _owner, _unsent = socket.socket(fileno=fd), os.getpid(), b""
    _listener, _is_deaf = None, False
    _words.clear()
    _actions.clear()


def is_open() -> bool:
    """True in a worker's own process; False in its forked children and outside a job."""
    return _line is not None and _owner == os.getpid()


def emit(report: Report) -> None:
    """Reports to the agent; never raises and never keeps training waiting.

    Numpy scalars in it become plain numbers.
    """
    if _line is None or not is_open():
        return
    try:
        text = json.dumps(encode(report), default=_plain)
    except (TypeError, ValueError):  # keys that JSON has not, circles
        text = json.dumps({"kind": report.kind, "unreadable": repr(report)[:1000]})
    with _sending:
        try:
            _send(_line, text.encode() + b"\n", must_arrive=report.decisive)
        except OSError:
            # The agent has gone, and this process is about to; or the script has closed what it
            # does not know, and nothing will be heard any more, though a thread still listens.
            _deafen()


def _send(line: socket.socket, data: bytes, *, must_arrive: bool) -> None:
    """Loses a whole report rather than delay a step; what decides the job's fate is waited for."""
    global _unsent
    if must_arrive:
        line.sendall(_unsent + data)
        _unsent = b""
        return
    # The rest of a report that is on its way has to follow before anything else.
    if _unsent:
        _unsent = _unsent[_send_some(line, _unsent) :]
    if not _unsent:
        sent = _send_some(line, data)
        _unsent = data[sent:] if sent else b""


def _send_some(line: socket.socket, data: bytes) -> int:
    try:
        return line.send(data, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return 0


def when(word: str, action: Callable[[], None]) -> None:
    """Has `action` called, in a thread of its own, once the agent says `word`, or has said it."""
    if not is_open():
        return
    with _heard:
        _actions[word] = action
        was_said = word in _words
    _listen()
    if was_said:
        threading.Thread(target=action, name=f"tfrun {word}", daemon=True).start()


def text_of(word: str) -> str:
    """What the agent has said after `word`, the last time."""
    with _heard:
        return _texts.get(word, "")


def wait_for(word: str, seconds: float | None = None) -> None:
    """Blocks until the agent has said `word`, is gone, or the time is over."""
    if not is_open():
        return
    _listen()
    with _heard:
        _heard.wait_for(lambda: word in _words or _is_deaf, seconds)
        _words.discard(word)


def _listen() -> None:
    global _listener
    if _listener is None or not _listener.is_alive():
        _listener = threading.Thread(target=_hear, name="tfrun channel", daemon=True)
        _listener.start()


def _hear() -> None:
    """Takes in what the agent says, one word a line, until it is gone."""
    assert _line is not None
    rest = b""
    try:
        while data := _line.recv(4096):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                word, _, text = line.decode().partition(" ")
                with _heard:
                    _words.add(word)
                    _texts[word] = text
                    action = _actions.get(word)
                    _heard.notify_all()
                if action:
                    action()
    except OSError:
        pass
    finally:
        _deafen()


def _deafen() -> None:
    """Nobody waits any more for what the agent says."""
    global _is_deaf
    with _heard:
        _is_deaf = True
        _heard.notify_all()


def _plain(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        return value.item()
    return str(value)
