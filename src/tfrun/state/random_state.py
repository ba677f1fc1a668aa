"""Saves the state of the global random generators in a snapshot."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tfrun.data import global_random
from tfrun.data.global_random import State, give, give_but, take
from tfrun.state import plain_data

__all__ = ["State", "encode", "give", "give_but", "put_back", "take"]


def encode(state: State, arrays: dict[str, NDArray]) -> Any:
    """Returns `state` as JSON; its arrays go into `arrays`."""
    return plain_data.encode(list(state), arrays, "random")


def decode(encoded: Any, arrays: dict[str, NDArray]) -> State:
    """Returns what was encoded."""
    return tuple(plain_data.decode(encoded, arrays))


def put_back(encoded: Any, arrays: dict[str, NDArray]) -> None:
    """Has the generators go on from an encoded state."""
    global_random.give(decode(encoded, arrays))
