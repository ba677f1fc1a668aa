"""Which models are of a parameter-server strategy, and what Keras iterates over for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tfrun.ps.strategy import is_ours

_models: list[Any] = []


def strategy_of(model: Any) -> Any | None:
    """Returns the parameter-server strategy of a model; None when it has another, or none."""
    strategy = getattr(model, "_distribute_strategy", None)
    return strategy if is_ours(strategy) else None


@contextlib.contextmanager
def calling(model: Any) -> Iterator[None]:
    """While it lasts, an epoch iterator that Keras makes is this model's."""
    _models.append(model)
    try:
        yield
    finally:
        _models.pop()


def epochs_of(strategy: Any, options: dict[str, Any]) -> Any | None:
    """Returns the epoch iterator for a model on parameter servers; None for any other."""
    if not is_ours(strategy):
        return None
    from tfrun.ps.keras_epochs import Epochs

    return Epochs(_models[-1], options)
