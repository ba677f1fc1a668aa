"""Which optimizers the workers can share, and what of them belongs to which weight."""

from __future__ import annotations

from typing import Any

import keras
from keras.src import backend

from tfrun.engine import compression, host_collective, variable_values
from tfrun.job.settings import settings

# Whose update of a weight reads and writes nothing but the weight, its gradient and its slots.
OPTIMIZERS = frozenset(
    {
        *(keras.optimizers.SGD, keras.optimizers.RMSprop, keras.optimizers.Lion),
        *(keras.optimizers.Adam, keras.optimizers.AdamW, keras.optimizers.Adamax),
        *(keras.optimizers.Nadam, keras.optimizers.Adagrad, keras.optimizers.Adadelta),
        keras.optimizers.Ftrl,
    }
)
# Which change the rows of a table that have a gradient, and no others.
_BY_ROWS = (keras.optimizers.Adagrad,)


def inner(optimizer: Any) -> Any:
    """The optimizer that updates."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def slot_lists(optimizer: Any) -> dict[str, list[Any]]:
    """The optimizer's variables that belong to a weight each, by the names of its attributes."""
    weights = optimizer._trainable_variables
    found = {}
    for name, value in vars(optimizer).items():
        if not isinstance(value, list) or len(value) != len(weights) or not value:
            continue
        if name in ("_trainable_variables", "_variables"):
            continue
        pairs = list(zip(value, weights, strict=True))
        if all(
            slot is None
            or (isinstance(slot, backend.Variable) and tuple(slot.shape) == tuple(weight.shape))
            for slot, weight in pairs
        ):
            found[name] = list(value)
    return found


def tables_by_rows(model: Any, optimizer: Any) -> frozenset[int]:
    """The ids of weights of which an optimizer changes few rows: they are not sent whole.

    Args:
      model: that it trains.
      optimizer: that updates.
    """
    if type(optimizer) not in _BY_ROWS:
        return frozenset()
    layers = model._flatten_layers(include_self=False)
    embeddings = [layer for layer in layers if isinstance(layer, keras.layers.Embedding)]
    return frozenset(id(layer._embeddings) for layer in embeddings)


def why_whole(model: Any, strategy: Any) -> str:
    """Why an optimizer cannot be shared; "" where it can."""
    calls = host_collective.calls_of(strategy)
    optimizers = variable_values.optimizers_of(model)
    if calls is None:
        return "these workers use TensorFlow's collectives, not the host collective"
    if getattr(calls, "turns", None) is not None:
        return "workers may have several replicas, or come and go"
    if calls.group.world == 1:
        return "there is one worker"
    if compression.wanted():
        return "--compress rounds gradients that only one worker would get"
    if settings().recovers and settings().snapshots in ("0", "0s"):
        return "--snapshot-every 0 keeps no copy of the part that only one worker would hold"
    if len(optimizers) != 1 or optimizers[0] is not getattr(model, "optimizer", None):
        return f"the model has {len(optimizers)} optimizers, but only one can be shared"
    real = inner(optimizers[0])
    if type(real) not in OPTIMIZERS:
        return f"what {type(real).__name__} does to a weight may need others"
    if not real.built:
        return "it is built by the first step"
    if any(getattr(v, "overwrite_with_gradient", False) for v in real._trainable_variables):
        return "some weights are scales of float8, which are no sums"
    if any(len(variable_values.copies(v)) != 1 for v in real._trainable_variables):
        return "workers have several devices"
    slots = slot_lists(real)
    known = sum(1 for each in slots.values() for slot in each if slot is not None)
    rest = [v for v in real.variables if v.shape == ()]
    if known == 0:
        return f"{type(real).__name__} has no state for its weights, as it is set"
    scalars = sum(
        1 for each in slots.values() for slot in each if slot is not None and slot.shape == ()
    )
    if known - scalars + len(rest) != len(real.variables):
        return f"this version's {type(real).__name__} has other variables than tfrun knows"
    return ""
