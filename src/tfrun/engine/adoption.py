"""Brings what a script has made outside the strategy's scope under the strategy.

A metric, a model or an optimizer that was made above `with strategy.scope():` has variables of
this worker alone: each worker would count, or train, for itself. `strangers_of` says what of a
model's world that is, and `adopt` makes it the strategy's, with the chief's values.

A variable keeps its memory on the worker's first device: a function that has read it before (a
`dataset.map` with a preprocessing layer) goes on reading the same.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.saving.keras_saveable import KerasSaveable
from tensorflow.python.distribute import device_util, distribute_lib
from tensorflow.python.distribute.sharded_variable import ShardedVariable

from tfrun.engine.scopes import default_strategy
from tfrun.engine.script_lines import script_line
from tfrun.job.errors import TfrunError

_given: list[Any] = []
_FUNCTIONS = ("train_function", "test_function", "predict_function")


@dataclass(kw_only=True)
class Strangers:
    """What a model uses and is not its strategy's.

    Attributes:
      variables: Keras variables that were made under no strategy.
      models: those that know no strategy; the model itself, or models that it is made of.
      optimizers: likewise.
      users: all models and optimizers that were found, strangers or not: what they remember of
        variables has to follow them.
      others: what belongs to another strategy, by name.
    """

    variables: list[Any] = field(default_factory=list)
    models: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    users: list[Any] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.variables or self.models or self.optimizers or self.others)


def give(strategy: Any) -> None:
    """Notes the job's strategy, which a script that names none trains by."""
    strategy.is_adopted = True
    _given[:] = [strategy]


def given() -> Any | None:
    """The job's strategy, where the script has been given it; see adopted_script.py."""
    return _given[0] if _given else None


def strategy_for(model: Any) -> Any | None:
    """The strategy that a model is to be used under; None for TensorFlow's default one.

    It is the model's own; else that of the scope around the call, of the model's optimizer or of
    its weights, in this order.
    """
    if model._distribute_strategy is not None:
        return model._distribute_strategy
    if tf.distribute.has_strategy():
        return tf.distribute.get_strategy()
    found = [strategy_of_optimizer(getattr(model, "optimizer", None))]
    if model.built:
        found += [strategy_of(variable) for variable in model.variables]
    return next((strategy for strategy in found if strategy is not None), None)


def strategy_of(variable: Any) -> Any | None:
    """The strategy under whose scope a variable, Keras's or TensorFlow's, was made; or None."""
    value = variable._value if isinstance(variable, keras.Variable) else variable
    if isinstance(value, ShardedVariable):
        value = value.variables[0]
    return getattr(value, "_distribute_strategy", None)


def settle(model: Any) -> None:
    """Adopts what `model` uses and is not its strategy's; all workers must call this.

    Raises:
      TfrunError: TFRUN-506, when something belongs to another strategy.
    """
    strategy = strategy_for(model)
    if strategy is not None:
        strangers = strangers_of(model, strategy)
        if strangers:
            adopt(strangers, strategy)


def strangers_of(model: Any, strategy: Any) -> Strangers:
    """What `model` uses that is not `strategy`'s. Changes nothing.

    Looked at are the model, its layers, its metrics, its losses, its optimizers, and what these
    consist of, as far as it is Keras's kind of object or stands in a list or a dictionary.
    """
    found = Strangers()
    for one in _reached(model):
        if isinstance(one, keras.Variable):
            if one._value is None:  # it has no value yet, and gets it where it is used
                continue
            owner, strangers = strategy_of(one), found.variables
            name = f"the variable {one.path!r}"
        elif isinstance(one, BaseOptimizer):
            found.users.append(one)
            owner, strangers = strategy_of_optimizer(one), found.optimizers
            name = f"the optimizer {one.name!r}"
        elif isinstance(one, TensorFlowTrainer):
            found.users.append(one)
            owner, strangers = one._distribute_strategy, found.models
            name = f"the model {getattr(one, 'name', one)!r}"
        else:
            continue
        if owner is None:
            strangers.append(one)
        elif owner is not strategy:
            found.others.append(name)
    return found


def adopt(strangers: Strangers, strategy: Any) -> None:
    """Makes all of `strangers` the strategy's; all workers must call this.

    Raises:
      TfrunError: TFRUN-506, when something belongs to another strategy.
    """
    if strangers.others:
        raise TfrunError(
            "TFRUN-506",
            f"{strangers.others[0]} belongs to another strategy than the model that uses it",
            expected="one strategy for a model, its optimizer and its metrics",
            fix="Make one strategy, and make all of them inside its `with strategy.scope():`",
        )
    for model in strangers.models:
        model._distribute_strategy = strategy
    for optimizer in strangers.optimizers:
        optimizer._distribution_strategy = strategy
    keys = {}
    for variable in strangers.variables:
        before = _key(variable)
        _give_to(variable, strategy)
        keys[before] = _key(variable)
    for user in strangers.users:
        if isinstance(user, BaseOptimizer):
            _rename_keys(user, keys)
        else:
            _forget_functions(user)


def outside(name: str) -> TfrunError:
    """The error for an object that a loop of the script's own uses, and nobody can adopt."""
    return TfrunError(
        "TFRUN-506",
        f"{name} was made outside the strategy's scope",
        where=script_line(),
        expected="what strategy.run uses to be made under the same strategy",
        fix="Make it inside `with strategy.scope():`; for a model that is the model itself, its "
        "optimizer and its metrics",
    )


def _reached(model: Any) -> Iterator[Any]:
    """The model and all that it consists of, each once, in an order that all workers share."""
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        if isinstance(one, list | tuple | dict):
            seen.add(id(one))
            waiting.extend(one.values() if isinstance(one, dict) else one)
        elif isinstance(one, types.MethodType):  # a loss or a metric may be one
            waiting.append(one.__self__)
        elif isinstance(one, keras.Variable):
            seen.add(id(one))
            yield one
        elif isinstance(one, KerasSaveable | keras.random.SeedGenerator):
            seen.add(id(one))
            yield one
            waiting.extend(vars(one).values())
            if isinstance(one, TensorFlowTrainer):
                # A property, which may name the script's own, some of which `compile` makes later.
                with contextlib.suppress(AttributeError):
                    waiting.extend(one.metrics)


def strategy_of_optimizer(optimizer: Any) -> Any | None:
    """The strategy under whose scope a Keras optimizer was made; None for none."""
    strategy = getattr(optimizer, "_distribution_strategy", None)
    # An optimizer that was made under none has TensorFlow's default strategy.
    return None if strategy is distribute_lib._get_default_strategy() else strategy


def _key(variable: Any) -> str:
    """As which an optimizer knows a variable: keras/src/backend/tensorflow/optimizer.py."""
    cls: Any = TFOptimizer  # whose method needs no optimizer
    return cls._var_key(None, variable)


def _give_to(variable: Any, strategy: Any) -> None:
    """Makes `variable` one of the strategy's; each replica begins with the chief's value."""
    old = variable._value
    used = False

    def creator(next_creator, **kwargs):
        nonlocal used
        kwargs["trainable"] = old.trainable  # Keras's own flag may change, this one cannot
        if used or not _stands_here(old):
            return next_creator(**kwargs)
        used = True
        value = kwargs["initial_value"]
        old.assign(value() if callable(value) else value)
        old._distribute_strategy = strategy
        return old

    with tf.init_scope(), default_strategy():
        value = old.read_value()
        with tf.variable_creator_scope(creator), strategy.scope():
            variable._initialize(value)


def _stands_here(variable: Any) -> bool:
    """Whether `variable` is on the device on which a new one would be."""
    return device_util.canonicalize(variable.device) == device_util.canonicalize(
        device_util.current()
    )


def _rename_keys(optimizer: Any, keys: dict[str, str]) -> None:
    """An optimizer finds a variable's place and slots by a key, which has changed."""
    for remembered in vars(optimizer).values():
        if isinstance(remembered, dict) and any(key in keys for key in remembered):
            renamed = {keys.get(key, key): value for key, value in remembered.items()}
            remembered.clear()
            remembered.update(renamed)


def _forget_functions(model: Any) -> None:
    """What was traced has the old variables in it."""
    for name in _FUNCTIONS:
        setattr(model, name, None)
    config = getattr(model, "_compile_config", None)
    if config is not None and config.config.get("jit_compile") == "auto":
        model.jit_compile = model._resolve_auto_jit_compile()  # which depends on the strategy
