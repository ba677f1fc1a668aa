"""A checkpoint's state.json, for people, and extra.safetensors, for arrays outside the model."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from tfrun.checkpoint.durable_files import sync, write_synced

STATE, EXTRA = "state.json", "extra.safetensors"
# safetensors knows these in numpy; the others (bfloat16, text, …) travel as bytes.
_PLAIN = frozenset(
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    ]
)


def write(directory: Path, state: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes both files and waits until the disk has them.

    Raises:
      OSError: they cannot be written.
      TypeError, ValueError: the state is not JSON, or an array holds objects or records.
    """
    raw, dtypes = as_plain(arrays)
    text = json.dumps({**state, "dtypes": dtypes}, default=_number, indent=1)
    write_synced(directory / STATE, text.encode())
    try:
        # To a file at once: `safetensors.save` holds the GIL while it copies, and training waits.
        safetensors.save_file(raw, directory / EXTRA)
    except SafetensorError as error:
        raise _os_error(error) from error
    sync(directory / EXTRA)


def read(directory: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the state and the arrays, which are read-only.

    Raises:
      OSError: they cannot be read.
    """
    state = read_state(directory / STATE)
    arrays = safetensors.load((directory / EXTRA).read_bytes())
    return state, as_they_were(arrays, state.pop("dtypes"))


def read_state(path: Path) -> dict[str, Any]:
    """Returns the state alone.

    Raises:
      OSError, ValueError: it cannot be read.
    """
    return json.loads(path.read_bytes())


def as_plain(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns arrays that safetensors knows, and what the others were: dtype and shape, by name.

    Raises:
      ValueError: an array holds objects or records.
    """
    raw, dtypes = {}, {}
    for name, array in arrays.items():
        # `np.ascontiguousarray` would make a scalar an array of one dimension.
        array = np.asarray(array, order="C")
        if array.dtype.name not in _PLAIN:
            dtypes[name] = [_name_of(array.dtype, name), list(array.shape)]
            array = array.reshape(-1).view(np.uint8)
        raw[name] = array
    return raw, dtypes


def as_they_were(raw: dict[str, np.ndarray], dtypes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns the arrays that `as_plain` was given."""
    changed = {
        name: raw[name].view(_dtype(dtype)).reshape(shape)
        for name, (dtype, shape) in dtypes.items()
    }
    return {**raw, **changed}


def _number(value: Any) -> Any:
    """Numbers of numpy, such as a History has, are numbers in JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r}")


def _name_of(dtype: np.dtype, array: str) -> str:
    """Returns a name from which `_dtype` makes the dtype again; `str` has none for bfloat16."""
    for name in () if dtype.hasobject else (dtype.name, dtype.str):
        try:
            if _dtype(name) == dtype:
                return name
        except AttributeError:
            continue
    raise ValueError(f"{array!r} cannot be saved: it is an array of {dtype}")


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # comes with TensorFlow, and has names that numpy does not know

        return np.dtype(getattr(ml_dtypes, name))


def _os_error(error: SafetensorError) -> OSError:
    """safetensors has the number of the operating system's error in its text alone."""
    match = re.search(r"\(os error (\d+)\)", str(error))
    number = int(match[1]) if match else errno.EIO
    return OSError(number, os.strerror(number) if match else str(error))
