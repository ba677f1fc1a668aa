"""Finds where the records of a TFRecord file begin, once, and keeps that beside the file.

A record is its length (8 bytes, little endian), the length's checksum (4), the data, and the
data's checksum (4); see tensorflow/core/lib/io/record_writer.h. The kept index is an int64 .npy
of the file's size and modification time (ns) and the place of each record, and counts only while
both still fit.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import io
import mmap
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfrun.data import errors
from tfrun.job import files
from tfrun.job.settings import settings

FRAME = 16  # bytes of a record that are not its data
LENGTH = struct.Struct("<Q")
KEPT = ("index", "count")  # what is kept about a file, beside it
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def index_files(paths: Sequence[str]) -> list[NDArray[np.int64]]:
    """Returns for each file where its records begin, and at last where the file ends (bytes).

    Raises:
      TfrunError: TFRUN-604 (a file is missing), TFRUN-605 (cut off or damaged), TFRUN-606
        (compressed).
    """
    return kept_or_made(paths, "index", _scan)


def kept_or_made(
    paths: Sequence[str], what: str, make: Callable[[str], NDArray[np.int64]]
) -> list[NDArray[np.int64]]:
    """Returns what is kept about each file, as long as its size and its time are the same.

    Args:
      paths: of the files.
      what: which of the things that are kept about them.
      make: makes it of a path, shape [k].

    Raises:
      TfrunError: TFRUN-604 (a file is missing).
    """

    def of_one(path: str) -> NDArray[np.int64]:
        try:
            status = Path(path).stat()
            stamp, places = np.array([status.st_size, status.st_mtime_ns]), _places(path, what)
            for place in places:
                kept = _load(place)
                if kept is not None and np.array_equal(kept[:2], stamp):
                    return kept[2:]
            made = make(path)
        except OSError as error:
            raise errors.unreadable(path, error) from None
        for place in places:
            if _save(place, np.concatenate([stamp, made])):
                break
        return made

    # Reading the file's pages is what takes the time, and threads do that side by side. (zlib,
    # which counts the records of compressed ones, lets go of the GIL as well.)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(of_one, paths))


def _scan(path: str) -> NDArray[np.int64]:
    size = Path(path).stat().st_size
    starts, place = [], 0
    with Path(path).open("rb") as file:
        if file.read(2) in _COMPRESSED and not _is_record(file, size):
            raise errors.compressed(path)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else io.BytesIO() as data:
            unpack = LENGTH.unpack_from
            while place < size:
                starts.append(place)
                if size - place < FRAME:
                    raise errors.cut_off(path, place, "the file ends within it")
                place += unpack(data, place)[0] + FRAME  # type: ignore[arg-type]
                if place > size:
                    raise errors.cut_off(path, starts[-1], "its length goes beyond the file's end")
    return np.array([*starts, size], np.int64)


def _is_record(file: io.BufferedReader, size: int) -> bool:
    """Whether the file begins with a length that fits; compressed bytes make an absurd one."""
    file.seek(0)
    head = file.read(8)
    return len(head) == 8 and LENGTH.unpack(head)[0] + FRAME <= size


def is_kept(path: str) -> bool:
    """Whether a file is one of those kept about others; TensorFlow finds them by `*`."""
    return path.endswith(tuple(f".tfrun-{what}" for what in KEPT))


def _places(path: str, what: str) -> list[Path]:
    """Where the index may be kept: beside the file, else in the run directory.

    Under a name that another program's `train-*` does not find.
    """
    file = Path(path)
    places = [file.with_name(f".{file.name}.tfrun-{what}")]
    if run_dir := settings().run_dir:
        name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:32]
        places.append(Path(run_dir, "index", f"{name}.tfrun-{what}"))
    return places


def _load(place: Path) -> NDArray[np.int64] | None:
    try:
        kept = np.load(io.BytesIO(place.read_bytes()), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return kept if kept.dtype == np.int64 and kept.ndim == 1 and len(kept) > 2 else None


def _save(place: Path, index: NDArray[np.int64]) -> bool:
    """Writes the index, whole or not at all: other workers are making the same one."""
    try:
        if place.parent.name == "index":
            place.parent.mkdir(exist_ok=True)
        with files.whole(place) as temporary, temporary.open("wb") as file:
            np.save(file, index)
    except OSError:
        return False
    return True
