"""Sends messages as WebSocket text frames, `{"v": 1, "kind": "hello", …fields}`."""

from __future__ import annotations

import json
import math
from typing import Any

from tfrun.job.errors import TfrunError
from tfrun.job.record import Record, made

PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32  # of lists and objects within each other; the message is the first
_INT_LIMIT = 2**63


class Message(Record):
    """Base of all messages."""


def encode(message: Message) -> str:
    """Returns the message's text frame, which `decode` takes whatever a worker has reported.

    What JSON, or another language's reader, cannot hold becomes text: NaN and infinities
    ("NaN", "Infinity", as in protobuf's JSON mapping), integers beyond 64 bits, lone surrogates
    (a file name that is no UTF-8), and what is nested too deep.
    """
    return json.dumps(
        {"v": PROTOCOL_VERSION, "kind": message.kind, **_sendable(vars(message))},
        separators=(",", ":"),
        allow_nan=False,
    )


def _sendable(value: Any, depth: int = 1) -> Any:
    match value:
        case dict() | list() | tuple() if depth > MAX_DEPTH:
            return "…"
        case dict():
            return {_text(str(key)): _sendable(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_sendable(item, depth + 1) for item in value]
        case str():
            return _text(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case int() if not -_INT_LIMIT <= value < _INT_LIMIT:
            return hex(value)  # str() refuses thousands of digits
    return value


def _text(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def decode(text: str) -> Message:
    """Reads a text frame.

    Raises:
      TfrunError: TFRUN-302, when it is not a message of this protocol version.
    """
    try:
        values: Any = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_constant)
        if _depth(values) > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep")
        json.dumps(values, ensure_ascii=False).encode()  # refuses lone surrogates
    except (ValueError, RecursionError) as error:
        raise _malformed(f"not JSON: {error!s:.100}") from None
    if not isinstance(values, dict):
        raise _malformed("not a JSON object")
    version = values.pop("v", None)
    if version != PROTOCOL_VERSION or type(version) is not int:
        raise _malformed(f"another protocol version than {PROTOCOL_VERSION}")
    try:
        return made(Message, values.pop("kind", None), values, exact=True)
    except ValueError as error:
        raise _malformed(str(error)) from None


def _int(digits: str) -> int:
    # The length first: some Python versions take minutes for a million digits.
    if len(digits) > 20 or not -_INT_LIMIT <= (value := int(digits)) < _INT_LIMIT:
        raise ValueError("an integer of more than 64 bits")
    return value


def _float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("a number beyond the range of a double")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _depth(value: Any) -> int:
    """Returns how deep lists and objects are nested."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _malformed(reason: str) -> TfrunError:
    return TfrunError("TFRUN-302", f"malformed control message: {reason}")
