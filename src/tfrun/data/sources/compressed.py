"""Counts the records of a compressed TFRecord file, once: the number is kept as an index is.

Not by TensorFlow's reader, for which a file that was cut off just ends.
"""

from __future__ import annotations

import concurrent.futures
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tfrun.data import errors
from tfrun.data.sources.record_index import kept_or_made

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 20
_WINDOW = {"GZIP": 31, "ZLIB": 15}  # zlib.h, inflateInit2: which header to expect


def count_records(paths: Sequence[str], compression: str) -> NDArray[np.int64]:
    """Returns how many records each file has, shape [files].

    Raises:
      TfrunError: TFRUN-604 (a file is missing), TFRUN-605 (cut off or damaged).
    """

    def count(path: str) -> int:
        made = kept_or_made(path, "count", lambda: np.array([_count(path, compression)]))
        return int(made[0])

    with concurrent.futures.ThreadPoolExecutor() as pool:  # zlib lets go of the GIL
        return np.array(list(pool.map(count, paths)), np.int64)


def _count(path: str, compression: str) -> int:
    records, rest, head = 0, 0, b""  # bytes to the record's end; what is there of a length
    try:
        for chunk in _inflated(path, compression):
            place = 0
            while place < len(chunk):
                if not rest:
                    begin = chunk[place : place + 8 - len(head)]
                    head, place = head + begin, place + len(begin)
                    if len(head) == 8:
                        records, rest, head = records + 1, _LENGTH.unpack(head)[0] + 8, b""
                passed = min(rest, len(chunk) - place)
                rest, place = rest - passed, place + passed
    except (zlib.error, EOFError) as error:
        raise errors.corrupt_compressed(path, records, compression, str(error)) from None
    if rest or head:
        raise errors.corrupt_compressed(path, records, compression, "the file ends within it")
    return records


def _inflated(path: str, compression: str) -> Iterator[bytes]:
    """Yields the content, of one compressed stream or of several that follow each other."""
    inflate = zlib.decompressobj(_WINDOW[compression])
    with Path(path).open("rb") as file:
        while raw := inflate.unconsumed_tail or inflate.unused_data or file.read(_CHUNK):
            if inflate.eof:
                inflate = zlib.decompressobj(_WINDOW[compression])
            yield inflate.decompress(raw, _CHUNK)
    if not inflate.eof:
        raise EOFError("the compressed data is cut off")
