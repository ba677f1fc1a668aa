"""Saves the state of the global random generators in a snapshot."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tfrun.data import global_random
from tfrun.data.drawn_orders import DrawnOrders
from tfrun.data.global_random import Drawn, State, give, give_but, take
from tfrun.state import plain_data

__all__ = ["State", "drawn", "encode", "give", "give_but", "put_back", "take"]


def encode(state: State, arrays: dict[str, NDArray]) -> Any:
    """Returns `state` as JSON; its arrays go into `arrays`."""
    return plain_data.encode(list(state), arrays, "random")


def drawn(orders: DrawnOrders, arrays: dict[str, NDArray]) -> dict[str, Any]:
    """What the data of a training has drawn, as JSON; the arrays of that go into `arrays`.

    Args:
      orders: what it draws between its batches.
      arrays: see above.
    """
    return {
        "draws": Drawn.any,
        "drawn by pipelines": sorted(Drawn.by_pipelines),
        "orders": plain_data.encode(orders.known, arrays, "orders"),
    }


def know_drawn(values: dict[str, Any], arrays: dict[str, NDArray], orders: DrawnOrders) -> None:
    """Takes over what `drawn` has returned in the script's earlier run, or elsewhere."""
    Drawn.any = Drawn.any or values.get("draws", False)
    Drawn.by_pipelines |= set(values.get("drawn by pipelines", ()))
    orders.know(plain_data.decode(values.get("orders", []), arrays))


def decode(encoded: Any, arrays: dict[str, NDArray]) -> State:
    """Returns what was encoded."""
    return tuple(plain_data.decode(encoded, arrays))


def put_back(encoded: Any, arrays: dict[str, NDArray]) -> None:
    """Has the generators go on from an encoded state."""
    global_random.give(decode(encoded, arrays))
