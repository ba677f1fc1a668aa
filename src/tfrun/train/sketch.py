"""Sketches a variable in at most 1,024 numbers, which tell how far two variables differ.

Small ones are kept as they are. Of a large one each number is the sum of every 1,024th value, with
random signs, the same for all variables of a size (a count sketch: Charikar, Chen, Farach-Colton
2002): the norm of the difference of two sketches is that of the variables, to about 5 %.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WIDTH = 1024


def sketch(values: NDArray) -> NDArray[np.float64]:
    """Returns the sketch.

    Args:
      values: numbers of any shape and dtype.

    Returns:
      float64 of shape [min(size, 1024)].
    """
    flat = np.ravel(values).astype(np.float64)
    if flat.size <= WIDTH:
        return flat
    signs = np.random.default_rng(flat.size).integers(0, 2, flat.size, np.int8)
    flat *= 2.0 * signs - 1.0
    rows = -(-flat.size // WIDTH)
    return np.pad(flat, (0, rows * WIDTH - flat.size)).reshape(rows, WIDTH).sum(axis=0)
