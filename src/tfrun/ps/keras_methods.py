"""Puts parameter servers behind Keras's `fit`, `evaluate` and `predict`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from keras.src.backend.tensorflow import trainer

from tfrun.ps.errors import not_everywhere
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


def install() -> None:
    """Lets models of a parameter-server strategy take results for batches; once."""
    cls = trainer.TensorFlowTrainer
    if hasattr(cls.make_train_function, "_tfrun_servers"):
        return
    for name in ("train", "test", "predict"):
        method = f"make_{name}_function"
        setattr(cls, method, _making(getattr(cls, method), f"{name}_function"))
    cls._maybe_symbolic_build = _building(cls._maybe_symbolic_build)
    for name in ("train_on_batch", "test_on_batch", "predict_on_batch"):
        setattr(cls, name, _refusing(getattr(cls, name), name))


def _making(original: Any, attribute: str) -> Any:
    @functools.wraps(original)
    def make(self, force=False):
        if strategy_of(self) is None:
            return original(self, force=force)
        setattr(self, attribute, _result)
        return None

    make._tfrun_servers = True  # type: ignore[attr-defined]
    return make


def _result(ended: Any) -> Any:
    """What a train function returns: for `predict`, Keras hands over a list of results."""
    return ended[0] if isinstance(ended, list) else ended.result


def _building(original: Any) -> Any:
    @functools.wraps(original)
    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is None or strategy_of(self) is None:
            return original(self, iterator=iterator, data_batch=data_batch)
        from tfrun.ps.keras_epochs import symbolic_batch

        return original(self, data_batch=symbolic_batch(iterator))

    return _maybe_symbolic_build


def _refusing(original: Any, name: str) -> Any:
    @functools.wraps(original)
    def on_batch(self, *args, **kwargs):
        if strategy_of(self) is not None:
            raise not_everywhere(f"model.{name}")
        return original(self, *args, **kwargs)

    return on_batch
