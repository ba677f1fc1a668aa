"""Shortens what an exception says to the few lines that matter. Pure.

Keras puts the arguments of a call below its message, TensorFlow the places of a graph above it: the
last line of either is no error. What Python shows below a message (notes, causes, the exceptions of
a group) comes from the worker's report.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfrun.job.reports import Error

LINES = 6  # of the message
WIDTH = 400  # characters of a line
_STYLE = re.compile(r"\x1b\[[\d;]*m")
_FRAME = re.compile(r'\s*File "(.*)", line (\d+)(?:, in (.*))?')
_NODE = re.compile(r"\[\[\{\{node (.*?)\}\}\]\]")
_TENSORFLOW = re.compile(
    r"\{\{function_node [^}]*\}\} ?|\[\[\{\{node .*?\}\}\]\]|\[Op:[^\]]*\](?: name: *)?"
)
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3|[/\\]tfrun[/\\]|^<")
# Below these stands what was given, and nothing about what is wrong with it.
_ENDS = re.compile(
    r"Arguments received by |Call arguments received by |Received arguments:|config=\{|"
    r"Full object config: |Traceback \(most recent call last\)|List of objects that could"
)


def plain(text: str) -> str:
    """Returns a text without the bold type in which Keras writes what it wants to be seen."""
    return _STYLE.sub("", text)


def essence(error: Error) -> list[str]:
    """Returns the exception's type with its first meaningful lines, and what belongs to it."""
    kind = error.type
    if (begin := _begin_of_syntax(error)) is not None:
        lines = _lines(error)
        return _clipped([lines[-1], *lines[begin:-1]])
    if kind == "SystemExit":
        return _clipped(error.traceback.rstrip().splitlines()[-1:])
    said = _said(plain(error.message))
    if not said:
        said = [f"(without a message) in: {error.line}" if error.line else "(without a message)"]
    lines = [f"{kind}: {said[0]}" if kind else said[0], *said[1:]]
    lines += _texts(error.notes)
    lines += [f"  - {text}" for text in _texts(error.exceptions)]
    for text, words in ((error.cause, "caused by"), (error.context, "while handling")):
        if text:
            lines.append(f"{words} {plain(text)}")
    return _clipped(lines)


def frames(error: Error) -> list[str]:
    """Returns the lines of the traceback above the exception's own text."""
    lines = _lines(error)
    if (begin := _begin_of_syntax(error)) is not None:
        return lines[:begin]
    head = re.compile(rf"[| ]*(?:\w+\.)*{re.escape(error.type)}(?:: |:?$)")
    message = plain(error.message).splitlines()
    for i in range(len(lines) - 1, -1, -1):
        ends = message[0].rstrip() if message else ""
        if head.match(lines[i]) and lines[i].rstrip().endswith(ends):
            return lines[:i]
    return lines


def _said(message: str) -> list[str]:
    """The meaningful lines of a message."""
    node = _NODE.search(message)
    if message.startswith("Graph execution error:") or "Detected at node" in message:
        return _of_graph(message, node[1] if node else "")
    found: list[str] = []
    for line in message.splitlines():
        if ends := _ENDS.search(line):
            line = line[: ends.start()]
        line = _TENSORFLOW.sub("", line).rstrip()
        if line.strip(" `"):
            found.append(line)
        if ends or len(found) == LINES:
            break
    return [found[0].lstrip(), *found[1:]] if found else []


def _of_graph(message: str, node: str) -> list[str]:
    """TensorFlow lists the calls that have made a node, and says what is wrong below."""
    lines, script, last = message.splitlines(), "", -1
    for i, line in enumerate(lines):
        if "Traceback (most recent call last)" in line:
            break  # of a function of the script's, in the graph
        if frame := _FRAME.fullmatch(line):
            last = i
            if not _LIBRARY.search(frame[1]):
                script = f"{frame[1]}, line {frame[2]}"
    below = "\n".join(lines[last + 1 :] if last >= 0 else lines[1:])
    found = _said(below) or ["Graph execution error"]
    where = ", ".join(part for part in (node and f"node {node}", script) if part)
    return [*found, *([f"in {where}"] if where else [])]


def _begin_of_syntax(error: Error) -> int | None:
    """Where a syntax error's place begins: Python shows it above the message."""
    if error.type not in ("SyntaxError", "IndentationError", "TabError"):
        return None
    for i, line in reversed(list(enumerate(_lines(error)))):
        frame = _FRAME.fullmatch(line)
        if frame and frame[3] is None:
            return i
    return None


def _lines(error: Error) -> list[str]:
    return plain(error.traceback).rstrip().splitlines()


def _texts(found: Sequence[str] | None) -> list[str]:
    return [line for text in found or () for line in plain(text).splitlines()]


def _clipped(lines: list[str]) -> list[str]:
    return [line if len(line) <= WIDTH else f"{line[:WIDTH]}…" for line in lines]
