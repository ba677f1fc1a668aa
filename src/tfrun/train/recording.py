"""Records the losses, metrics and sketches of the variables of each step of a trial in files."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tfrun.engine import variable_values
from tfrun.job import files

WIDTH = 1024  # numbers of a sketch


def write(path: Path, logs: Mapping[str, float], found: Mapping[str, Any]) -> None:
    """Writes one step, its logs and its variables by name, whole or not at all."""
    arrays, sizes, digests = {}, {}, {}
    for name, value in zip(found, variable_values.arrays(found.values()), strict=True):
        if value.dtype.kind in "biufV":  # V: bfloat16 and the like
            arrays[name], sizes[name] = sketch(value), value.size
            digests[name] = hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()
    found_besides = {"logs": dict(logs), "sizes": sizes, "digests": digests}
    header = {name: json.dumps(value) for name, value in found_besides.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(path) as temporary:
        save_file(arrays, temporary, header)


def numbers(logs: Any) -> dict[str, float]:
    """Returns the scalars of Keras's logs; a number that is none as a text that JSON has."""
    found = {}
    for name, value in dict(logs or {}).items():
        array = np.asarray(value)
        if array.size == 1 and array.dtype.kind in "biuf":
            number = float(array.reshape(()))
            found[name] = number if math.isfinite(number) else str(number)
    return found


def sketch(values: NDArray) -> NDArray[np.float64]:
    """Sketches a variable in few numbers, which tell how far two variables differ.

    Small ones are kept as they are. Of a large one each number is the sum of every 1,024th value,
    with random signs, the same for all variables of a size (a count sketch: Charikar, Chen,
    Farach-Colton 2002): the norm of the difference of two sketches is that of the variables, to
    about 5 %.

    Args:
      values: numbers of any shape and dtype.

    Returns:
      float64 of shape [min(size, WIDTH)].
    """
    flat = np.ravel(values).astype(np.float64)
    if flat.size <= WIDTH:
        return flat
    signs = np.random.default_rng(flat.size).integers(0, 2, flat.size, np.int8)
    flat *= 2.0 * signs - 1.0
    rows = -(-flat.size // WIDTH)
    return np.pad(flat, (0, rows * WIDTH - flat.size)).reshape(rows, WIDTH).sum(axis=0)
