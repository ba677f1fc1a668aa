"""Saves the state of Python's and numpy's random generators in a snapshot."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrun.state import snapshot


def take() -> list[Any]:
    """What both generators hold now, for `encode`."""
    return [random.getstate(), np.random.get_state()]


def encode(state: list[Any], arrays: dict[str, NDArray]) -> Any:
    """Returns `state` as JSON; its arrays go into `arrays`."""
    return snapshot.encode(state, arrays, "random")


def put_back(encoded: Any, arrays: dict[str, NDArray]) -> None:
    """Has both generators go on from an encoded state."""
    _give(snapshot.decode(encoded, arrays))


@contextlib.contextmanager
def instead(state: list[Any]) -> Iterator[None]:
    """Has both generators go on from `state` for a while, and then from where they stand now."""
    now = take()
    _give(state)
    try:
        yield
    finally:
        _give(now)


def _give(state: list[Any]) -> None:
    python, numpy = state
    random.setstate(python)
    np.random.set_state(numpy)
