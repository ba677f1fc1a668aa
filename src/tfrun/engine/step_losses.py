"""Weighs the losses of a step, and what it logs of them: see also patches/keras_losses.py.

A step that is Keras's from end to end computes as Keras does. In one that a script has a part
in, nothing is multiplied: the script sees losses as on one machine, and gradients are weighed
(losses.py). A loop of the script's own states its weights: it is left alone.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras import tree
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer

from tfrun.engine import batch_statistics, commit, own_steps, replica, whole_values
from tfrun.engine.loss_terms import Term
from tfrun.engine.losses import Losses

_LIBRARIES = ("keras", "tensorflow", "tfrun")
LOGGED_METRICS = "_tfrun_logged_metrics"


@contextlib.contextmanager
def of_step(run: replica.ReplicaRun, step: Any, args: tuple[Any, ...]) -> Iterator[None]:
    """Tells a run what losses the block, Keras's training or test step, computes; when to update.

    Args:
      run: the current run.
      step: the function that runs.
      args: its arguments on this replica.
    """
    model, name = _whose(step)
    run.context.strategy.stepping = weakref.ref(model) if name else None
    is_keras = name == "train_step" and not own_steps.has_own(model, (name, "compute_metrics"))
    if is_keras and commit.of(model.optimizer) is not None:
        # They update the weights before the metrics, but nothing in them depends on that order. The
        # metrics of this step then travel with its gradients.
        run.deferred = []
    if model is None or run.context.num_replicas_in_sync == 1 or not args:
        yield
        return
    alone = not _is_keras_step(model, step, name)
    if name == "train_step" or alone:
        _count_samples(run, args)
    run.losses = Losses(run, model, args, trains=name == "train_step", alone=alone)
    run.losses.count = functools.partial(_count_samples, run, args)
    with run.losses.watched():
        yield


def by_data(known: Losses, targets: list[Any], sources: list[Any], gradients: Any) -> Any:
    """Gradients by what is no variable, as those of one worker's loss: by the samples, mostly.

    Args:
      known: the losses of this replica's step.
      targets: those of which gradients were taken, which are added up.
      sources: by which.
      gradients: of this replica's losses, as the tape gives them.
    """
    weight = known.weight_of(targets)
    if isinstance(weight, float) and weight == 1.0:
        return gradients

    def weighed(source: Any, gradient: Any) -> Any:
        if not tf.is_tensor(gradient):
            return gradient
        with known.unseen():
            value = gradient * tf.cast(weight, gradient.dtype)
        kind = known.kind(source)
        if kind in (Term.FIXED, Term.ROWS):
            known.mark(value, Term.SUM if kind is Term.FIXED else kind)
        return value

    flat = map(weighed, sources, tree.flatten(gradients))
    return tree.pack_sequence_as(gradients, list(flat))


def note_who_asks(module: str) -> None:
    """A script that asks in its step how many replicas there are weighs its losses itself."""
    run = replica.current()
    if run is not None and run.losses is not None and module.split(".")[0] not in _LIBRARIES:
        run.losses.states_replicas = True


def logs_of_all(run: replica.ReplicaRun, result: Any) -> Any:
    """The logs that a step of the script's own returns: their mean over the replicas is one's."""
    if run.losses is None or not run.losses.alone or not isinstance(result, dict):
        return result
    held = {metric.name for metric in run.losses.model.metrics}
    may_be = functools.partial(_may_be_a_metric_s, run.losses)  # that of `compile` is a dictionary
    fixed = {n for n, v in result.items() if n in held and all(map(may_be, tree.flatten(v)))}
    object.__setattr__(run.losses.model, LOGGED_METRICS, fixed)  # past Keras's tracking
    return {
        name: value if name in fixed else _log_of_all(run, value) for name, value in result.items()
    }


def _counted_by_metrics(model: Any) -> list[Any]:
    """The variables of a model's metrics, also of those that its own `metrics` leaves out."""
    every: Any = keras.layers.Layer.metrics
    found = [v for metric in (*model.metrics, *every.fget(model)) for v in metric.variables]
    shared = tf.distribute.DistributedValues
    return [v for v in found if isinstance(v._value, shared) and v.aggregation == "sum"]


def metrics_among(model: Any, logs: dict[str, Any]) -> set[str]:
    """Which of a step's logs are what the model's metrics come to."""
    if own_steps.has_own(model, ("get_metrics_result",)):
        return set()
    if own_steps.has_own(model, own_steps.LOGGING):
        return getattr(model, LOGGED_METRICS, set()) & logs.keys()
    return set(logs)


def _may_be_a_metric_s(losses: Any, value: Any) -> bool:
    """Whether a number of the logs follows from variables alone, as a metric's result does."""
    is_static = tf.is_symbolic_tensor(value) and tf.get_static_value(value) is not None
    return tf.is_tensor(value) and not is_static and losses.is_fixed(value)  # eager ones all are


def _log_of_all(run: replica.ReplicaRun, value: Any) -> Any:
    known = run.losses
    if not is_number(value):
        return value
    if known.is_fixed(value):
        return whole_values.of_metrics(known, value, _counted_by_metrics(known.model))
    if batch_statistics.is_centred(known, value):
        whole = of_the_batch(known, value)
        if whole is not None:
            return whole
    if run.samples is None and known.is_mean(value):
        return value
    return known.whole(value) * tf.cast(run.context.num_replicas_in_sync, value.dtype)


def _whose(step: Any) -> tuple[Any, str]:
    """The model and the name of its training or test step; None for another function."""
    owner, name = getattr(step, "__self__", None), getattr(step, "__name__", "")
    is_step = isinstance(owner, TensorFlowTrainer) and name in ("train_step", "test_step")
    return (owner, name) if is_step else (None, "")


def _is_keras_step(model: Any, step: Any, name: str) -> bool:
    """Whether nothing in a step is the script's but layers, losses and metrics."""
    if getattr(step, "__func__", None) is not getattr(TensorFlowTrainer, name):
        return False
    own = ("compute_loss", "_compute_loss", "_aggregate_additional_loss")
    return all(getattr(type(model), each) is getattr(TensorFlowTrainer, each) for each in own)


def of_the_batch(known: Any, value: Any) -> Any:
    """A variance, or what is made of one; None, and told, where nobody can compute it."""
    (whole,) = whole_values.of_all(known, [value])
    if whole is None or whole is value:
        known.tell(value)
        return None
    return whole


def is_number(value: Any) -> bool:
    return tf.is_tensor(value) and value.shape.rank == 0 and value.dtype.is_floating


def _count_samples(run: replica.ReplicaRun, args: tuple[Any, ...]) -> None:
    """Lets a short batch of Keras's own training step count by its true number of samples.

    Keras gives each replica's mean loss the weight 1 / replicas, which is wrong when the last
    batch of an epoch leaves the replicas with different counts. Only batches without a static
    size can differ, and only they pay for the sum: one scalar, reduced while the forward pass
    runs. A custom training loop states its own weights and is left alone.

    Gives the run its `samples` and `all_samples`.
    """
    # A step of the script's own may take more than (x, y, sample_weight).
    first: Any = next((leaf for leaf in tree.flatten(args[0]) if leaf is not None), None)
    if not tf.is_tensor(first) or first.shape.rank == 0:
        return
    if not tf.executing_eagerly() and first.shape.rank and first.shape[0] is not None:
        return
    run.samples = tf.cast(tf.shape(first)[0], tf.float32)
    run.all_samples = run.context.all_reduce(tf.distribute.ReduceOp.SUM, run.samples)
