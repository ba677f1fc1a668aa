"""TFRecord files as a source: any record in any order, its checksum checked when first read."""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import mmap
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.data import errors
from tfrun.data.sources.gather import Gathered, Unreadable, keep_freed_memory
from tfrun.data.sources.record_index import index_files, is_kept
from tfrun.storage.url import is_url

HEAD, TAIL = 12, 4  # bytes before and behind a record's data: length and its checksum, checksum
_MASK = np.uint32(0xA282EAD8)  # tensorflow/core/lib/hash/crc32c.h, kMaskDelta
_LARGE = 64 << 10
_SHORTER = "it has become shorter"


class RecordSource:
    """The records of some files, in the files' order; a sample is a scalar string.

    A record's checksum is checked the first time that this process reads it.

    Attributes:
      is_copied: whether the files are copies that only this machine has.
    """

    spec = tf.TensorSpec([], tf.string)

    def __init__(self, paths: Sequence[str], *, is_copied: bool = False) -> None:
        self.is_copied = is_copied
        self._paths = list(paths)
        starts = index_files(self._paths)
        self._ends = np.cumsum([len(of_file) - 1 for of_file in starts])
        if not len(self):
            raise errors.empty(f"{len(self._paths)} TFRecord files")
        self._starts = np.concatenate([of_file[:-1] for of_file in starts])
        self._sizes = np.concatenate([np.diff(of_file) for of_file in starts])
        self._file_ends = [int(of_file[-1]) for of_file in starts]
        mean = float(self._sizes.mean())
        self.sample_bytes: float | None = mean
        self._checked = np.zeros(len(self), bool)
        # A record of many pages comes from a disk faster if it is asked for in one piece.
        self._is_mapped = mean < _LARGE
        self._files: dict[int, Any] = {}
        self._maps = np.zeros(len(starts), np.uintp)  # where they begin in memory
        weakref.finalize(self, _close, self._files)
        self._kept: list[Gathered] = []
        keep_freed_memory()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: NDArray[np.int64]) -> list[NDArray]:
        files = np.searchsorted(self._ends, indices, side="right")
        starts, sizes = self._starts[indices], self._sizes[indices]
        try:
            with self._gathering() as gathered:
                addresses, _held = self._pieces(files, starts, sizes)
                content = gathered.fill(addresses, sizes)
                data = _data_of(content, sizes)
                bad = None
                if not self._checked[indices].all():
                    bad = first_damaged(content, sizes, data)
        except Unreadable as failed:
            path = self._paths[files[failed.piece]]
            raise errors.vanished(path, _reason(failed.error)) from None
        if bad is not None:
            path, start = self._paths[files[bad]], int(starts[bad])
            raise errors.corrupt(path, start, "its checksum is wrong")
        self._checked[indices] = True
        records = np.empty(len(files), object)
        records[:] = data
        return [records]

    def located(self, indices: NDArray[np.int64]) -> list[NDArray]:
        """Returns where records are, for a reader in a graph.

        Returns:
          Paths, bytes of shape [k]; and int64 of shape [k, 3]: the first byte of a record's data,
          its length, and how many bytes of the file follow it.
        """
        files = np.searchsorted(self._ends, indices, side="right")
        begins, sizes = self._starts[indices] + HEAD, self._sizes[indices] - HEAD - TAIL
        ends = np.array([Path(path).stat().st_size for path in self._paths])[files]
        paths = np.array([os.fsencode(path) for path in self._paths], object)[files]
        places = np.stack([begins, sizes, ends - begins - sizes], axis=1).astype(np.int64)
        return [paths, places]

    def _pieces(
        self, files: NDArray[np.int64], starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> tuple[NDArray[np.uintp], list[bytes]]:
        """Returns where each record is in memory, and what has been read for that."""
        opened = {number: self._file(number) for number in np.unique(files).tolist()}
        addresses = self._maps[files] + starts.astype(np.uintp)
        found: list[bytes] = []
        if any(isinstance(file, int) for file in opened.values()):
            for place, number in enumerate(files.tolist()):
                if isinstance(file := opened[number], int):
                    size = int(sizes[place])
                    try:
                        found.append(os.pread(file, size, int(starts[place])))
                    except OSError as error:
                        raise errors.vanished(self._paths[number], _reason(error)) from None
                    if len(found[-1]) < size:
                        raise errors.vanished(self._paths[number], _SHORTER)
                    addresses[place] = np.frombuffer(found[-1], np.uint8).ctypes.data
        return addresses, found

    def _file(self, number: int) -> Any:
        """Returns a file's map, or its descriptor; opened once."""
        with self._lock:
            if number in self._files:
                return self._files[number]
            path = self._paths[number]
            try:
                with Path(path).open("rb", 0) as file:
                    if os.fstat(file.fileno()).st_size < self._file_ends[number]:
                        raise errors.vanished(path, _SHORTER)
                    mapped = _map_of(file) if self._is_mapped else None
                    self._files[number] = os.dup(file.fileno()) if mapped is None else mapped
                    if mapped is not None:
                        self._maps[number] = mapped.ctypes.data
            except OSError as error:
                raise errors.vanished(path, _reason(error)) from None
            return self._files[number]

    @contextlib.contextmanager
    def _gathering(self) -> Iterator[Gathered]:
        """Lends a file in memory; the last one that was given back, if there is one."""
        try:
            gathered = self._kept.pop()
        except IndexError:
            gathered = Gathered()
        try:
            yield gathered
        finally:
            if not gathered.is_large and not self._kept:
                self._kept.append(gathered)


class FileSource:
    """Whole files; a sample is (path, content), two scalar strings."""

    spec = (tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.string))
    sample_bytes: float | None = None

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = np.array([os.fsencode(path) for path in paths], object)

    def __len__(self) -> int:
        return len(self._paths)

    def located(self, indices: NDArray[np.int64]) -> list[NDArray]:
        """Returns the paths, for a reader in a graph."""
        return [self._paths[indices]]

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


def stated(patterns: str | Sequence[str]) -> list[str]:
    """Returns patterns as a list of text.

    Raises:
      UsageError: TFRUN-601 where there is none, TFRUN-607 where one is no path.
    """
    several = [patterns] if isinstance(patterns, str | os.PathLike) else patterns
    try:
        found = [os.fspath(pattern) for pattern in several]
    except TypeError:
        what = f"files is {patterns!r:.200}"
        raise errors.bad_argument(what, "tfrun.Dataset, files", "a pattern, or several") from None
    if not found:
        raise errors.empty("the list of files")
    return found


def matching(patterns: str | Sequence[str]) -> list[str]:
    """Returns the files that match one or more patterns, sorted, so that all workers agree.

    What tfrun keeps beside TFRecord files is none of them.

    Raises:
      UsageError: TFRUN-604 where a pattern matches nothing; see `stated`.
    """
    found: list[str] = []
    for pattern in stated(patterns):
        if is_url(pattern):
            raise errors.no_url(pattern)
        # Not Path.glob: the pattern may be absolute.
        matched = glob.glob(pattern, recursive=True)  # noqa: PTH207
        files = sorted(file for file in matched if not is_kept(file))
        if not files:
            raise errors.no_file(pattern)
        found += files
    return found


def _map_of(file: io.FileIO) -> NDArray[np.uint8] | None:
    """Maps a file; None where its file system cannot."""
    try:
        made = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError:
        return None
    if hasattr(made, "madvise"):
        made.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(made, np.uint8)


def _data_of(content: mmap.mmap, sizes: NDArray[np.int64]) -> list[bytes]:
    """The records' data without what stands around it."""
    ends = np.cumsum(sizes)
    begins, ends = (ends - sizes + HEAD).tolist(), (ends - TAIL).tolist()
    return [content[begin:end] for begin, end in zip(begins, ends, strict=True)]


def first_damaged(
    content: bytes | mmap.mmap, sizes: NDArray[np.int64], data: Sequence[bytes]
) -> int | None:
    """Returns the number of the first record that is not as it was written; None if all are.

    Args:
      content: the records, one after the other; there may be more behind them.
      sizes: bytes of each record with what stands around its data, shape [records].
      data: the data of each record, as it was read from `content`.
    """
    raw = np.frombuffer(content, np.uint8)
    ends = np.cumsum(sizes)
    begins, expected = ends - sizes, sizes - HEAD - TAIL
    lengths, kind = np.unique(expected, return_inverse=True)  # mostly few different ones
    length_sums = _masked_checksums([length.tobytes() for length in lengths.astype("<u8")])[kind]
    good = _numbers(raw, begins, "<u8") == expected.astype(np.uint64)
    good &= _numbers(raw, begins + 8, "<u4") == length_sums
    good &= _numbers(raw, ends - TAIL, "<u4") == _masked_checksums(data)
    return None if good.all() else int(np.argmin(good))


def _masked_checksums(data: Sequence[bytes]) -> NDArray[np.uint32]:
    """Returns the checksum that TensorFlow writes for each piece of data, shape [pieces]."""
    # In C, with the processor's own instruction: 0.2 us for 3 KB, of which half is the call.
    sums = np.fromiter(map(google_crc32c.value, data), np.uint32, len(data))
    return (sums >> np.uint32(15) | sums << np.uint32(17)) + _MASK


def _numbers(raw: NDArray[np.uint8], places: NDArray[np.int64], dtype: str) -> NDArray:
    width = np.dtype(dtype).itemsize
    return raw[places[:, None] + np.arange(width)].view(dtype)[:, 0]


def _close(files: dict[int, Any]) -> None:
    for file in files.values():
        if isinstance(file, int):
            os.close(file)


def _reason(error: OSError) -> str:
    return _SHORTER if error.errno == errno.EFAULT else error.strerror or str(error)
