"""Reuses the memory of batches that nothing refers to any more.

Fresh memory of this size comes from the kernel page by page, which takes several times as long as
the copying of the samples into it.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

KEPT, LARGEST = 4, 32 << 20  # buffers, bytes
_ALIGNMENT = 64  # TensorFlow takes an array over without a copy from such an address


class Buffers:
    """Arrays on recycled memory, each on a 64-byte boundary; from any thread.

    Args:
      largest: bytes; what is larger is given back to the system.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._free: deque[memoryview] = deque(maxlen=KEPT)

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
        """Returns an array with any content, on memory that nobody else sees."""
        size = math.prod(shape) * dtype.itemsize
        memory = self._taken(size + _ALIGNMENT)
        # An array made of a memoryview is the base of all its views, also of views of views. So
        # when it dies, none is left: no tensor, no slice of one, no NumPy array of such a slice.
        root = np.frombuffer(memory, np.uint8)
        if len(memory) <= self._largest:
            weakref.finalize(root, self._free.append, memory).atexit = False
        begin = -root.ctypes.data % _ALIGNMENT
        return root[begin : begin + size].view(dtype).reshape(shape)

    def _taken(self, size: int) -> memoryview:
        # No lock: what is given back may be so in the middle of this, by the garbage collector.
        with contextlib.suppress(IndexError):
            for _ in range(KEPT):
                memory = self._free.pop()  # the one that was used last: caches still hold it
                if len(memory) >= size:
                    return memory
                self._free.appendleft(memory)
        return np.empty(size, np.uint8).data
