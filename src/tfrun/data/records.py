"""TFRecord files as a source: any record in any order, its checksum checked when first read."""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data import errors
from tfrun.data.record_index import FRAME, index_files

_HEAD = 12  # bytes before a record's data


class RecordSource:
    """The records of some files, in the files' order; a sample is a scalar string.

    A record's checksum is checked the first time that this process reads it.
    """

    spec = tf.TensorSpec([], tf.string)

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = list(paths)
        starts = index_files(self._paths)
        self._ends = np.cumsum([len(of_file) - 1 for of_file in starts])
        if not len(self):
            raise errors.empty(f"{len(self._paths)} TFRecord files")
        self._starts = np.concatenate([of_file[:-1] for of_file in starts])
        self._sizes = np.concatenate([np.diff(of_file) for of_file in starts])
        self._checked = np.zeros(len(self), bool)
        self._files: dict[int, int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        files = np.searchsorted(self._ends, indices, side="right").tolist()
        starts, sizes = self._starts[indices], self._sizes[indices]
        records = np.empty(len(files), object)
        if self._checked[indices].all():
            records[:] = self._bytes(files, starts + _HEAD, sizes - FRAME)
            return [records]
        good = whole_records(self._bytes(files, starts, sizes))
        if len(good) < len(files):
            bad = len(good)
            path, start = self._paths[files[bad]], int(starts[bad])
            raise errors.corrupt(path, start, "its checksum is wrong")
        self._checked[indices] = True
        records[:] = good
        return [records]

    def _bytes(self, files: list[int], starts: NDArray, sizes: NDArray) -> list[bytes]:
        # Not by a memory map: a file that becomes shorter would kill the process.
        pread, places = os.pread, zip(files, starts.tolist(), sizes.tolist(), strict=True)
        read: list[bytes] = []
        for number, start, size in places:
            try:
                data = pread(self._files.get(number) or self._file(number), size, start)
            except OSError as error:
                raise errors.vanished(self._paths[number], error.strerror or str(error)) from None
            if len(data) < size:
                raise errors.vanished(self._paths[number], "it has become shorter")
            read.append(data)
        return read

    def _file(self, number: int) -> int:
        with self._lock:
            if number not in self._files:
                flags = os.O_RDONLY | os.O_CLOEXEC
                self._files[number] = os.open(self._paths[number], flags)
            return self._files[number]


class FileSource:
    """Whole files; a sample is (path, content), two scalar strings."""

    spec = (tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.string))

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = np.array([os.fsencode(path) for path in paths], object)

    def __len__(self) -> int:
        return len(self._paths)

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        paths = self._paths[indices]
        contents = np.empty(len(paths), object)
        contents[:] = [_content(os.fsdecode(path)) for path in paths]
        return [paths, contents]


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise errors.vanished(path, error.strerror or str(error)) from None


def matching(patterns: str | Sequence[str]) -> list[str]:
    """Returns the files that match one or more patterns, sorted, so that all workers agree.

    Raises:
      UsageError: TFRUN-604 where a pattern matches nothing.
    """
    found: list[str] = []
    for pattern in [patterns] if isinstance(patterns, str | os.PathLike) else patterns:
        # Not Path.glob: the pattern may be absolute.
        files = sorted(glob.glob(os.fspath(pattern), recursive=True))  # noqa: PTH207
        if not files:
            raise errors.no_file(os.fspath(pattern))
        found += files
    return found


def whole_records(raw: list[bytes]) -> list[bytes]:
    """Returns the data of the records of `raw`, up to the first one that is damaged.

    Python has no crc32c, and one in numpy is slower, so TensorFlow's own reader checks them, in
    a file in memory. It is not public, and its public forms read a file from the start.
    """
    from tensorflow.python.lib.io import _pywrap_record_io

    whole: list[bytes] = []
    with _file_in_memory(b"".join(raw)) as path:
        try:
            for record in _pywrap_record_io.RecordIterator(path, ""):  # type: ignore[misc]
                whole.append(record)
        except tf.errors.OpError:
            pass
    return whole


@contextlib.contextmanager
def _file_in_memory(content: bytes) -> Iterator[str]:
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile(buffering=0) as file:
            file.write(content)
            yield file.name
        return
    file = os.memfd_create("tfrun-records", os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)
