"""Reads, holds and sets this worker's copies of a model's variables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random import seed_generator
from numpy.typing import NDArray

from tfrun.engine import own_copies, script_state, state_slots
from tfrun.job.errors import TfrunError

GLOBAL_SEED = "model/global_seed"
# Under which Keras keeps what `keras.random` draws from without a seed; until 3.13 without a name.
GLOBAL_SEED_GENERATOR = getattr(seed_generator, "GLOBAL_SEED_GENERATOR", "global_seed_generator")
OPTIMIZERS = (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer)


def optimizers_of(model: Any) -> list[Any]:
    """The model's optimizer, and all others that it or its layers hold, as a GAN does.

    As attributes, or in a list, tuple or dictionary that is one.
    """
    found = [getattr(model, "optimizer", None)]
    for layer in (model, *model._flatten_layers(include_self=False)):
        for value in vars(layer).values():
            found += _members(value)
    return list({id(item): item for item in found if isinstance(item, OPTIMIZERS)}.values())


def state_variables(model: Any) -> dict[str, Any]:
    """All Keras variables that training changes, but for metrics, by a name for each."""
    return named(model.variables, optimizers_of(model))


def all_variables(model: Any) -> dict[str, Any]:
    """As `state_variables`, and what the script keeps in variables of its own."""
    found = state_variables(model)
    return {**found, **of_script(model, found)}


def of_script(model: Any, of_model: dict[str, Any]) -> dict[str, Any]:
    """What the script keeps in variables that are neither the model's nor its optimizers'.

    Args:
      model: the model.
      of_model: its `state_variables`.
    """
    return script_state.found([*of_model.values(), *model.metrics_variables])


def named(variables: Sequence[Any], optimizers: Sequence[Any]) -> dict[str, Any]:
    """The variables of models and of optimizers, by a name for each.

    Names hold numbers: paths of Keras variables need not differ from each other. Those of an
    optimizer are its own, so that the others keep theirs when it is built.
    """
    found = {f"model/{i}/{v.path}": v for i, v in enumerate(variables)}
    for number, optimizer in enumerate(optimizers):
        for i, v in enumerate(optimizer.variables):
            found[f"optimizer/{number}.{i}/{v.path}"] = v
    return {**found, **global_seed_by_name()}


def global_seed_by_name() -> dict[str, Any]:
    """As `global_seed`, with its name; empty until somebody has drawn from it."""
    seed = global_seed()
    return {} if seed is None else {GLOBAL_SEED: seed}


def global_seed() -> Any | None:
    """What `keras.random` draws from where no seed is given; None until somebody has."""
    made = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    return None if made is None else made.state


def build_global_seed(strategy: Any) -> None:
    """Makes it, where nobody has drawn from it yet."""
    with strategy.scope():
        seed_generator.global_seed_generator()


def trained_by(optimizer: Any) -> list[Any]:
    """The variables that a Keras optimizer updates; none before it is built."""
    return getattr(optimizer, "inner_optimizer", optimizer)._trainable_variables


def trained(variables: Sequence[Any], optimizers: Sequence[Any]) -> list[list[int] | None]:
    """Which of the variables each optimizer updates; None where it is not built."""
    numbers = {id(v): i for i, v in enumerate(variables)}
    return [
        [numbers[id(v)] for v in trained_by(optimizer) if id(v) in numbers]
        if optimizer.built
        else None
        for optimizer in optimizers
    ]


def build(
    variables: Sequence[Any],
    optimizers: Sequence[Any],
    numbers: Sequence[Sequence[int] | None],
    strategy: Any,
) -> None:
    """Makes the optimizers' variables, which otherwise their first step makes.

    Args:
      variables: as `trained` was given them.
      optimizers: likewise.
      numbers: what it returned in the script's earlier run.
      strategy: under which the models were made.
    """
    for optimizer, mine in zip(optimizers, numbers, strict=False):
        if mine is not None and not optimizer.built:
            with strategy.scope():
                optimizer.build([variables[i] for i in mine if i < len(variables)])


def _members(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else [value]


def copies(variable: Any) -> tuple[Any, ...]:
    """The TensorFlow variables of this worker's replicas behind a Keras variable."""
    value = variable._value
    if not isinstance(value, tf.distribute.DistributedValues):
        return (value,)
    strategy = value.distribute_strategy
    here = strategy.experimental_local_results(value)
    # No call of `turns_of`: a step asks for some.
    turns = getattr(getattr(strategy.extended, "_host_calls", None), "turns", None)
    return tuple(turns.apart(here[0])) if turns and own_copies.is_apart(here[0]) else here


def hold(variables: Sequence[Any]) -> list[tf.Tensor]:
    """The present values of this worker's first copies, without copying them.

    TensorFlow replaces the buffer of a variable that somebody still holds, instead of writing
    into it: what is assigned later costs a copy then, and what is not costs nothing.
    """
    found = []
    for variable in variables:  # without `copies`: a step asks for some
        if isinstance(variable, state_slots.Slot):
            state_slots.check_here(variable)
        value = variable._value
        if isinstance(value, tf.distribute.DistributedValues):
            value = value.distribute_strategy.experimental_local_results(value)[0]
        found.append(read(value))
    return found


def held(found: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """As `hold`, of variables by name."""
    return dict(zip(found, hold(list(found.values())), strict=True))


def read(variable: Any) -> tf.Tensor:
    """The present value of one TensorFlow variable: `read_value` in a quarter of its time.

    It is done at every step. What is left out is moving the value to another device.
    """
    if not isinstance(variable, tf.Variable):  # sharded over parameter servers
        return tf.convert_to_tensor(variable)
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def make_room(variables: Iterable[Any]) -> None:
    """Has the heap hold memory for what variables are to be given, while nobody waits for it.

    What is freed stays in the heap with its pages (process/allocator.py). To fault in those of a
    large state takes longer than to receive it.
    """
    sizes = [
        (tf.TensorShape(v.shape).num_elements() or 0) * tf.as_dtype(v.dtype).size for v in variables
    ]
    np.ones(sum(sizes), np.uint8)


def assign(variable: Any, value: NDArray) -> None:
    """Gives all of this worker's copies a value.

    Raises:
      TfrunError: TFRUN-507 where the shape is another one than that of the variable.
    """
    if tuple(variable.shape) != value.shape:
        raise misfit(
            f"the variable {variable.path!r} has the shape {tuple(variable.shape)}, but had "
            f"{value.shape} when its state was kept"
        )
    if isinstance(variable, state_slots.Slot):
        variable.holder.store(variable, value)
        return
    for copy in copies(variable):
        copy.assign(value.astype(copy.dtype.as_numpy_dtype, copy=False))


def arrays(found: Iterable[Any]) -> list[NDArray]:
    """The present values of variables, also of those of which another worker has the value.

    They are no copies, see `hold`.

    Raises:
      tf.errors.UnavailableError: that worker has gone.
    """
    every = list(found)
    away = state_slots.fetched(every)
    return [
        away[id(variable)] if id(variable) in away else np.asarray(read(copies(variable)[0]))
        for variable in every
    ]


def misfit(what: str) -> TfrunError:
    """The error of a state that does not fit the script that runs again."""
    return TfrunError(
        "TFRUN-507",
        what,
        expected="the script to make the same model whenever it is run",
        fix="Make it as it was, or look for what differs from run to run; --fresh begins anew",
    )


def digest(found: Iterable[Any]) -> str:
    """SHA-256 over the bytes of this worker's copies."""
    total = hashlib.sha256()
    for value in arrays(found):
        total.update(value.tobytes())
    return total.hexdigest()


def dtype_of_totals(metrics: Sequence[Any]) -> str:
    """The float type in which metric variables are kept and sent: of float64 no digit is lost."""
    return "float64" if any(variable.dtype == "float64" for variable in metrics) else "float32"


def metric_totals(metrics: Sequence[Any]) -> NDArray[np.floating]:
    """The metric variables' values on this worker, shape [replicas here, numbers]."""
    found = [[np.ravel(copy.numpy()) for copy in copies(variable)] for variable in metrics]
    rows = max(map(len, found), default=1)
    # One that is not apart on the replicas counts once.
    columns = [np.stack([*one, *[np.zeros_like(one[0])] * (rows - len(one))]) for one in found]
    if not columns:
        return np.zeros((rows, 0), np.float32)
    return np.concatenate(columns, axis=1).astype(dtype_of_totals(metrics))


def fitting(totals: NDArray[np.floating], rows: int) -> NDArray[np.floating]:
    """What the metrics have counted, for another number of replicas: the first one has all.

    Args:
      totals: shape [rows then, numbers], or [numbers].
      rows: replicas now.
    """
    totals = np.atleast_2d(totals)
    if len(totals) == rows:
        return totals
    made = np.zeros((rows, totals.shape[1]), totals.dtype)
    made[0] = totals.sum(axis=0, dtype=totals.dtype)
    return made


def set_metric_totals(
    metrics: Sequence[Any], totals: NDArray[np.floating], *, first: int = 0, replicas: int = 1
) -> None:
    """Gives each replica of this worker what it has counted, or what all have to the first one.

    Args:
      metrics: the metric variables.
      totals: all their values, shape [rows, numbers], or [numbers]: a row for each replica of the
        job, or another number of rows to be added up.
      first: the number of this worker's first replica.
      replicas: of the job.

    Raises:
      TfrunError: TFRUN-507 where these are other metrics.
    """
    totals = fitting(totals, replicas)
    there = sum(int(np.prod(variable.shape)) for variable in metrics)
    if totals.shape[1] != there:
        raise misfit(f"the metrics hold {there} numbers, and held {totals.shape[1]}")
    start = 0
    for variable in metrics:
        end = start + int(np.prod(variable.shape))
        for number, copy in enumerate(copies(variable)):
            value = totals[first + number, start:end].reshape(tuple(variable.shape))
            copy.assign(value.astype(copy.dtype.as_numpy_dtype, copy=False))
        start = end
