"""TensorBoard's event files: the few fields of the format that scalars and hyperparameters need.

A file is a TFRecord of `Event` messages (tensorflow/core/util/event.proto, framework/summary.proto,
tensorboard/plugins/hparams/plugin_data.proto). TensorFlow's own writer would have the launcher
import TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import google_crc32c

from tfrun.job import files

Scalar = str | float | bool
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
_SESSION_START = "_hparams_/session_start_info"
_SESSION_END = "_hparams_/session_end_info"
ANEW_SECONDS = 5.0  # between two attempts on a full disk
_VERSION = 0  # of the plugin's data


class EventFile:
    """An event file, which is appended to. After a full disk another one goes on: TensorBoard shows
    all of a folder, and reads none beyond a record that is cut."""

    def __init__(self, folder: Path) -> None:
        """Args:
        folder: TensorBoard shows each folder with such files as one run.

        Raises:
          OSError: the folder cannot be made or written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._number, self._tried = folder, 0, 0.0
        self.error: OSError | None = None
        self._open()
        self.flush()

    def _open(self) -> None:
        where = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        name = f"events.out.tfevents.{where}" + (f".{self._number}" if self._number else "")
        self._number += 1
        self._path = self._folder / name
        self._file = os.fdopen(files.opener(self._path, files.APPEND), "ab")
        self._put(_double(1, time.time()) + _text(3, "brain.Event:2"))

    def scalars(self, when: float, step: int, values: Mapping[str, float]) -> None:
        """Adds values by tag.

        Args:
          when: seconds since the epoch.
          step: the place on TensorBoard's axis.
          values: finite numbers or not.
        """
        summary = b"".join(
            _message(1, _text(1, tag) + _tag(2, _FLOAT) + struct.pack("<f", value))
            for tag, value in values.items()
        )
        self._event(when, step, summary)

    def hyperparameters(self, when: float, name: str, values: Mapping[str, Scalar]) -> None:
        """Says with which hyperparameters the job begins."""
        entries = b"".join(
            _message(1, _text(1, key) + _message(2, _value(value))) for key, value in values.items()
        )
        start = entries + _text(4, name) + _double(5, when)
        self._plugin(when, _SESSION_START, _varint(1, _VERSION) + _message(3, start))

    def ended(self, when: float, *, succeeded: bool) -> None:
        """Says how the job has ended."""
        end = _varint(1, 1 if succeeded else 2) + _double(2, when)  # STATUS_SUCCESS, _FAILURE
        self._plugin(when, _SESSION_END, _varint(1, _VERSION) + _message(4, end))

    def flush(self) -> None:
        """Has what was added be seen by others."""
        try:
            self._file.flush()
        except OSError as error:
            self.error = error

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            self.error = error

    def _plugin(self, when: float, tag: str, content: bytes) -> None:
        plugin = _message(1, _text(1, "hparams") + _message(2, content))
        # The plugin wants a value as well, which says nothing.
        tensor = _varint(1, 1) + _message(2, b"") + _tag(5, _BYTES) + _sized(struct.pack("<f", 0))
        self._event(when, 0, _message(1, _text(1, tag) + _message(8, tensor) + _message(9, plugin)))

    def _event(self, when: float, step: int, summary: bytes) -> None:
        self._write(_double(1, when) + _varint(2, step) + _message(5, summary))

    def _write(self, data: bytes) -> None:
        try:
            if self.error is not None:
                self._begin_anew()
            self._put(data)
        except OSError as error:
            self.error = error

    def _put(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        self._file.write(length + _masked_crc(length) + data + _masked_crc(data))

    def _begin_anew(self) -> None:
        """Raises OSError as long as there is no room."""
        now = time.monotonic()
        if now - self._tried < ANEW_SECONDS and self.error:
            raise self.error
        self._tried = now
        with contextlib.suppress(OSError):
            self._file.close()
        self._open()
        try:
            self._file.flush()
        except OSError:
            self._path.unlink(missing_ok=True)
            raise
        self.error = None


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _value(value: Scalar) -> bytes:
    """A google.protobuf.Value."""
    if isinstance(value, bool):
        return _varint(4, int(value))
    return _text(3, value) if isinstance(value, str) else _double(2, float(value))


def _tag(number: int, kind: int) -> bytes:
    return _number(number << 3 | kind)


def _number(value: int) -> bytes:
    """A varint; negative ones as 64 bits."""
    value &= (1 << 64) - 1
    digits = []
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def _varint(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _number(value)


def _double(number: int, value: float) -> bytes:
    return _tag(number, _DOUBLE) + struct.pack("<d", value)


def _sized(data: bytes) -> bytes:
    return _number(len(data)) + data


def _message(number: int, data: bytes) -> bytes:
    return _tag(number, _BYTES) + _sized(data)


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode("utf-8", "replace"))
