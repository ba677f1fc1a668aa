"""The state of Python's and numpy's random generators, as a part of a snapshot."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrun.train import snapshot


def take() -> list[Any]:
    """What both generators hold now, for `encode`."""
    return [random.getstate(), np.random.get_state()]


def encode(state: list[Any], arrays: dict[str, NDArray]) -> Any:
    """Returns `state` as JSON; its arrays go into `arrays`."""
    return snapshot.encode(state, arrays, "random")


def put_back(encoded: Any, arrays: dict[str, NDArray]) -> None:
    """Has both generators go on from an encoded state."""
    python, numpy = snapshot.decode(encoded, arrays)
    random.setstate(python)
    np.random.set_state(numpy)
