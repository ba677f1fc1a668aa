"""What a `TrainState` consists of: models, optimizers, metrics, and objects of the script's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from numpy.typing import NDArray

from tfrun.engine import variable_values as variables
from tfrun.job.errors import UsageError
from tfrun.state import plain_data


@dataclass(frozen=True, kw_only=True)
class LoopParts:
    """All that a custom loop changes.

    Attributes:
      models: Keras models or layers, built.
      optimizers: Keras optimizers; their variables may still have to be made.
      metrics: Keras metrics.
      objects: anything with `get_state()` and `set_state(state)`, by name.
      model_as_given, optimizer_as_given: as the script has stated them: one, or a list or
        dictionary.
    """

    models: Sequence[Any]
    optimizers: Sequence[Any]
    metrics: Sequence[Any]
    objects: Mapping[str, Any]
    model_as_given: Any
    optimizer_as_given: Any

    @property
    def metric_variables(self) -> list[Any]:
        """The variables of all metrics."""
        return [variable for metric in self.metrics for variable in metric.variables]

    @property
    def is_built(self) -> bool:
        """True once every optimizer has its variables."""
        return all(optimizer.built for optimizer in self.optimizers)

    def variables(self) -> dict[str, Any]:
        """All variables but those of metrics, by a name for each; see `variable_values.py`."""
        return variables.named(self._of_models(), self.optimizers)

    def ungated(self) -> dict[str, Any]:
        """Those that something else than an optimizer's update may change.

        A script sets a learning rate when it likes, and a target network is nobody's to optimize.
        """
        gated = {id(v) for optimizer in self.optimizers for v in variables.trained_by(optimizer)}
        return {
            name: v
            for name, v in self.variables().items()
            if id(v) not in gated
            and (name.startswith("model/") or v.path.endswith("learning_rate"))
        }

    def trained(self) -> list[list[int] | None]:
        """Which of the models' variables each optimizer updates; None where it is not built."""
        return variables.trained(self._of_models(), self.optimizers)

    def build(self, trained: Sequence[Sequence[int] | None]) -> None:
        """Makes the optimizers' variables, which otherwise their first step makes."""
        strategy = strategy_of(self.models[0])
        variables.build(self._of_models(), self.optimizers, trained, strategy)

    def object_states(self, arrays: dict[str, NDArray]) -> dict[str, Any]:
        """What each object remembers, as JSON; arrays go into `arrays`.

        Raises:
          UsageError: TFRUN-508 where it is no plain data.
        """
        states = {}
        for name, item in self.objects.items():
            try:
                states[name] = plain_data.encode(item.get_state(), arrays, f"objects/{name}")
            except TypeError as error:
                raise misuse(
                    f"what `{name}.get_state()` returns cannot be kept: {error}",
                    "numbers, texts, arrays, and lists, tuples and dictionaries of those",
                ) from error
        # An array belongs to its object, which may go on writing into it.
        arrays.update({k: v.copy() for k, v in arrays.items() if k.startswith("objects/")})
        return states

    def put_back(self, states: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> None:
        """Gives the objects what their namesakes remembered."""
        for name, item in self.objects.items():
            if name in states:
                item.set_state(plain_data.decode(states[name], arrays))

    def _of_models(self) -> list[Any]:
        """The models' variables, each one once: a GAN may hold its generator as well."""
        return list({id(v): v for model in self.models for v in model.variables}.values())


def collect(model: Any, optimizer: Any, metrics: Any, objects: Mapping[str, Any]) -> LoopParts:
    """Returns the parts of a `TrainState`.

    Raises:
      UsageError: TFRUN-508 where something is missing, or is none of these.
    """
    made = LoopParts(
        models=_several(model),
        optimizers=_several(optimizer),
        metrics=_several(metrics),
        objects=objects,
        model_as_given=model,
        optimizer_as_given=optimizer,
    )
    if not made.models or not all(isinstance(m, keras.layers.Layer) for m in made.models):
        raise misuse(f"`model` is {model!r}", "a Keras model, or a list or dictionary of them")
    for number, one in enumerate(made.models):
        if not one.variables:
            raise misuse(
                f"the model {one.name!r} (number {number}) has no Keras variables yet",
                "a model that is built",
                "Begin it with keras.Input, or call it on a batch inside `strategy.scope()`",
            )
    if not made.optimizers or not all(isinstance(o, variables.OPTIMIZERS) for o in made.optimizers):
        raise misuse(f"`optimizer` is {optimizer!r}", "a Keras optimizer, or a list of them")
    for metric in made.metrics:
        if not isinstance(metric, keras.metrics.Metric):
            raise misuse(f"`metrics` holds {metric!r}", "Keras metrics")
    for name, item in objects.items():
        if not (callable(getattr(item, "get_state", None)) and hasattr(item, "set_state")):
            raise misuse(
                f"`{name}` is a {type(item).__name__}, which cannot say what it remembers",
                "an object with `get_state()` and `set_state(state)`",
            )
    made.object_states({})
    return made


def misuse(what: str, expected: str, fix: str = "") -> UsageError:
    """The error of a `TrainState` that cannot do what is asked."""
    return UsageError("TFRUN-508", what, where="tfrun.TrainState", expected=expected, fix=fix)


def _several(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return tuple(given.values())
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def strategy_of(model: Any) -> Any:
    """The strategy under which the model was made; TensorFlow's default one without one."""
    value = model.variables[0].value
    return getattr(value, "distribute_strategy", None) or tf.distribute.get_strategy()
