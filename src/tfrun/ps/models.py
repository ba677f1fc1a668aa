"""Which models are of a parameter-server strategy, and what Keras iterates over for them."""

from __future__ import annotations

from typing import Any

from tfrun.data.keras.fit_plan import FitPlan
from tfrun.ps.strategy import is_ours


def strategy_of(model: Any) -> Any | None:
    """Returns the parameter-server strategy of a model; None when it has another, or none."""
    strategy = getattr(model, "_distribute_strategy", None)
    return strategy if is_ours(strategy) else None


def plan_of(model: Any, **planned: Any) -> FitPlan:
    """Returns the plan of a call in which an epoch iterator that Keras makes is this model's.

    Args:
      model: on parameter servers.
      **planned: the attributes of the plan of a `fit`.
    """

    def make(strategy: Any, options: dict[str, Any]) -> Any | None:
        from tfrun.ps.keras_epochs import KerasEpochs  # most jobs have no servers

        return KerasEpochs(model, options) if strategy is model.distribute_strategy else None

    return FitPlan(make_iterator=make, **planned)
