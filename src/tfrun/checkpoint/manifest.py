"""A checkpoint's manifest: its files with their sizes and checksums; written last.

    {"manifest": {"format": 1, "step": 500, "sequence": 12, "time": 1764000000.0,
                  "files": {"state.json": {"bytes": 812, "blake2b": "…"}, …}},
     "blake2b": "…"}

The outer checksum is that of the inner object, so that a damaged manifest is noticed too.
`sequence` counts the checkpoints of a directory. It, and not the step, says which one is the
newest: a job that went back to an earlier step writes smaller steps later.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfrun.checkpoint.durable_files import write_synced
from tfrun.job import files as own_file

NAME = "manifest.json"
FORMAT = 1
_CHUNK = 1 << 20  # bytes


class Damaged(Exception):
    """A checkpoint is not whole; the message names the file."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What belongs to a checkpoint.

    Attributes:
      step: the steps that the job had completed.
      sequence: how many checkpoints were written into this directory before this one.
      time: when it was written, seconds since 1970.
      files: name → {"bytes": size, "blake2b": hexadecimal digest}.
      format: the version of the layout on disk.
    """

    step: int
    sequence: int
    time: float
    files: dict[str, dict[str, Any]]
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        """The size of the checkpoint."""
        return sum(entry["bytes"] for entry in self.files.values())


def describe(directory: Path) -> dict[str, dict[str, Any]]:
    """Returns the size and the checksum of each file in `directory`."""
    files = sorted(path for path in directory.iterdir() if path.name != NAME)
    return {path.name: {"bytes": path.stat().st_size, "blake2b": digest(path)} for path in files}


def write(directory: Path, manifest: Manifest) -> None:
    """Writes the manifest and waits until the disk has it."""
    inner = asdict(manifest)
    outer = {"manifest": inner, "blake2b": _digest_of(inner)}
    write_synced(directory / NAME, json.dumps(outer, indent=1).encode())


def read(directory: Path) -> Manifest:
    """Returns the manifest of a checkpoint, without a look at its other files.

    Raises:
      Damaged: it is missing, damaged, or of a later version of tfrun.
    """
    path = directory / NAME
    try:
        data = own_file.read(path)
    except OSError as error:
        raise Damaged(f"{path}: {_reason(error)}") from None
    return parse(data, str(path))


def parse(data: bytes, where: str) -> Manifest:
    """Returns the manifest that a file holds.

    Raises:
      Damaged: it is damaged, or of a later version of tfrun.
    """
    try:
        outer = json.loads(data)
        inner = outer["manifest"]
        whole = outer["blake2b"] == _digest_of(inner)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{where}: {_reason(error)}") from None
    if not whole:
        raise Damaged(f"{where}: the checksum is wrong")
    if inner["format"] != FORMAT:
        raise Damaged(f"{where}: written by another version of tfrun (format {inner['format']})")
    return Manifest(**inner)


def verify(directory: Path, manifest: Manifest, *, contents: bool = True) -> None:
    """Compares every file with the manifest, or only its size.

    Raises:
      Damaged: for the first file that differs.
    """
    for name, entry in manifest.files.items():
        path = directory / name
        try:
            size = path.stat().st_size
            if size != entry["bytes"]:
                raise Damaged(f"{path}: {size:,} bytes instead of {entry['bytes']:,}")
            if contents and digest(path) != entry["blake2b"]:
                raise Damaged(f"{path}: the checksum is wrong")
        except OSError as error:
            raise Damaged(f"{path}: {_reason(error)}") from None


def digest(path: Path) -> str:
    """Returns the BLAKE2b digest of a file's content, 32 bytes in hexadecimal."""
    state = hashlib.blake2b(digest_size=32)
    with own_file.to_read(path) as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


def _digest_of(inner: Any) -> str:
    text = json.dumps(inner, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "missing"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "not a manifest"
