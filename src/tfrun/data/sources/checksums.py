"""The checksums of TFRecord records: CRC-32C, masked; tensorflow/core/lib/io/record_writer.h."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import google_crc32c
import numpy as np
from numpy.typing import NDArray

HEAD, TAIL = 12, 4  # bytes before and behind a record's data: length and its checksum, checksum
_MASK = np.uint32(0xA282EAD8)  # tensorflow/core/lib/hash/crc32c.h, kMaskDelta


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
    length_sums = masked_checksums([length.tobytes() for length in lengths.astype("<u8")])[kind]
    good = _numbers(raw, begins, "<u8") == expected.astype(np.uint64)
    good &= _numbers(raw, begins + 8, "<u4") == length_sums
    good &= _numbers(raw, ends - TAIL, "<u4") == masked_checksums(data)
    return None if good.all() else int(np.argmin(good))


def masked_checksums(data: Sequence[bytes]) -> NDArray[np.uint32]:
    """Returns the checksum that TensorFlow writes for each piece of data, shape [pieces]."""
    # In C, with the processor's own instruction: 0.2 us for 3 KB, of which half is the call.
    sums = np.fromiter(map(google_crc32c.value, data), np.uint32, len(data))
    return (sums >> np.uint32(15) | sums << np.uint32(17)) + _MASK


def _numbers(raw: NDArray[np.uint8], places: NDArray[np.int64], dtype: str) -> NDArray:
    width = np.dtype(dtype).itemsize
    return raw[places[:, None] + np.arange(width)].view(dtype)[:, 0]
