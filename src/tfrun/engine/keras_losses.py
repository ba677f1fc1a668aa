"""Repairs of how Keras weighs losses over replicas: one worker's loss, whatever it is made of.

Keras multiplies each mean over a batch by 1 / replicas where a `keras.losses` object computes it,
and what `add_loss` was given once more. What a script computes otherwise it leaves as it is, and
what a step of the script's own logs is a fraction of the loss (facts: keras/src/losses/loss.py,
`scale_loss_for_distribution`; keras/src/backend/tensorflow/trainer.py,
`_aggregate_additional_loss`).

Here a step that is Keras's from end to end computes as Keras does. In one that a script has a part
in, nothing is multiplied: the script sees losses as on one machine, and gradients are weighed
(losses.py). A loop of the script's own states its weights: it is left alone.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from keras import metrics, tree
from keras.src import backend
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.losses import loss as losses
from keras.src.trainers import compile_utils
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.trainer import Trainer
from tensorflow.python import pywrap_tfe

from tfrun.engine import replica
from tfrun.engine.loss_terms import MeanOver, Term
from tfrun.engine.losses import Losses, share_of

_LIBRARIES = ("keras", "tensorflow", "tfrun")
LOGGED_METRICS = "_tfrun_logged_metrics"


def weigh_losses() -> None:
    """Applies this module's repairs; once."""
    if hasattr(losses.scale_loss_for_distribution, "__wrapped__"):
        return
    compile_utils.CompileLoss.call = _count_losses_by_samples(compile_utils.CompileLoss.call)
    losses.scale_loss_for_distribution = _weigh(losses.scale_loss_for_distribution)
    losses.unscale_loss_for_distribution = _unweigh(losses.unscale_loss_for_distribution)
    losses.reduce_weighted_values = _weigh_by_mask(losses.reduce_weighted_values)
    cls = TensorFlowTrainer
    cls._aggregate_additional_loss = _weigh_once(cls._aggregate_additional_loss)
    metrics.Mean.update_state = _log_whole_losses(metrics.Mean.update_state)
    tape: Any = tf.GradientTape
    tape.gradient = _weigh_gradients(tape.gradient)
    for name in ("compute_average_loss", "scale_regularization_loss"):
        setattr(tf.nn, name, _stated_by_script(getattr(tf.nn, name)))


@contextlib.contextmanager
def of_step(run: replica.ReplicaRun, step: Any, args: tuple[Any, ...]) -> Iterator[None]:
    """Lets a run know the losses that the block, Keras's training or test step, computes.

    Args:
      run: the current run.
      step: the function that runs.
      args: its arguments on this replica.
    """
    model, name = _whose(step)
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
    return {name: _log_of_all(run, value) for name, value in result.items()}


def _may_be_a_metric_s(losses: Any, value: Any) -> bool:
    """Whether a number of the logs follows from variables alone, as a metric's result does."""
    is_static = tf.is_symbolic_tensor(value) and tf.get_static_value(value) is not None
    return tf.is_tensor(value) and not is_static and losses.is_fixed(value)  # eager ones all are


def _log_of_all(run: replica.ReplicaRun, value: Any) -> Any:
    known = run.losses
    if not _is_number(value) or known.is_fixed(value):
        return value
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


def _is_number(value: Any) -> bool:
    return tf.is_tensor(value) and value.shape.rank == 0 and value.dtype.is_floating


def _count_samples(run: replica.ReplicaRun, args: tuple[Any, ...]) -> None:
    """Lets a short batch of Keras's own training step count by its true number of samples.

    Keras gives each replica's mean loss the weight 1 / replicas, which is wrong when the last
    batch of an epoch leaves the replicas with different counts. Only batches without a static
    size can differ, and only they pay for the sum: one scalar, reduced while the forward pass
    runs. A custom training loop states its own weights and is left alone.

    Gives the run its `samples` and `all_samples`.
    """
    x, _, _ = data_adapter_utils.unpack_x_y_sample_weight(args[0])
    first: Any = next((leaf for leaf in tree.flatten(x) if leaf is not None), None)
    if not tf.is_tensor(first) or first.shape.rank == 0:
        return
    if not tf.executing_eagerly() and first.shape.rank and first.shape[0] is not None:
        return
    run.samples = tf.cast(tf.shape(first)[0], tf.float32)
    run.all_samples = run.context.all_reduce(tf.distribute.ReduceOp.SUM, run.samples)


def _weigh(original):
    @functools.wraps(original)
    def scale_loss_for_distribution(value):
        run = replica.current()
        if run is None or run.losses is None:
            return original(value)
        if run.losses.alone:
            run.losses.mark(value, Term.MEAN)
            return value
        if run.losses.trains and run.samples is not None:
            weighed = value * tf.cast(share_of(run, [value], value.dtype), value.dtype)
            run.losses.mark(weighed, Term.SUM)
        else:
            weighed = _by_replicas(original, run, value, lambda x, n: x / n)
            run.losses.mark(weighed, Term.PART)
        return weighed

    return scale_loss_for_distribution


def _by_replicas(original: Any, run: replica.ReplicaRun, value: Any, exact: Any) -> Any:
    """Keras multiplies by 1 / replicas in float32, whatever the loss is in."""
    if value.dtype.size <= tf.float32.size:
        return original(value)
    return exact(value, tf.cast(run.context.num_replicas_in_sync, value.dtype))


def _unweigh(original):
    @functools.wraps(original)
    def unscale_loss_for_distribution(value):
        run = replica.current()
        if run is None or run.losses is None:
            return original(value)
        if run.losses.alone or value.shape.rank:  # a loss for each sample has no weight
            return value
        if run.samples is None or not run.losses.trains:
            return _by_replicas(original, run, value, lambda x, n: x * n)
        return value * _share_again(run, value.dtype)

    return unscale_loss_for_distribution


def _share_again(run: replica.ReplicaRun, dtype: tf.DType) -> Any:
    """What undoes a share of the samples."""
    if dtype.size <= tf.float32.size:
        return tf.cast(tf.math.divide_no_nan(run.all_samples, run.samples), dtype)
    return tf.math.divide_no_nan(tf.cast(run.all_samples, dtype), tf.cast(run.samples, dtype))


def _weigh_by_mask(original):
    """A mean over the tokens that a mask leaves counts by them, not by samples.

    And a loss that is one number already, as a function of the script's may return it, Keras
    does not weigh at all.
    """

    @functools.wraps(original)
    def reduce_weighted_values(
        values, sample_weight=None, mask=None, reduction="sum_over_batch_size", dtype=None
    ):
        run = replica.current()
        ask = functools.partial(original, values, sample_weight, mask, reduction, dtype)
        if run is None or run.losses is None:
            return ask()
        numbers: Any = backend.convert_to_tensor(values, dtype=dtype)
        if numbers.shape.rank == 0:
            averages = mask is None or reduction in ("mean", "sum_over_batch_size")
            if sample_weight is not None or not averages:
                return ask()
            # A mask changes nothing: Keras gives the number to all that it leaves, and averages.
            return numbers if run.losses.alone else _weighed(run, numbers)
        if reduction == "sum" and not (run.losses.alone or run.losses.trains):
            return _weighed(run, ask())
        count = _what_counts(numbers, sample_weight, mask, reduction)
        if count is None:
            return ask()
        value = _without_weight(run, ask)
        run.losses.mark(value, MeanOver(count=count))
        return value if run.losses.alone else _weighed(run, value)

    return reduce_weighted_values


def _what_counts(values: Any, sample_weight: Any, mask: Any, reduction: str | None) -> Any:
    """Gives how much a replica's mean is the mean of; None where that is its samples."""
    if reduction == "mean_with_sample_weight" and (mask is not None or sample_weight is not None):
        weight: Any = losses.apply_mask(
            None if sample_weight is None else backend.convert_to_tensor(sample_weight),
            None if mask is None else backend.convert_to_tensor(mask),
            dtype=values.dtype,
            reduction=reduction,
        )
        return lambda: tf.reduce_sum(tf.cast(weight, values.dtype))
    if mask is not None and reduction in ("mean", "sum_over_batch_size"):
        return lambda: tf.reduce_sum(tf.cast(mask, values.dtype))
    return None


def _without_weight(run: replica.ReplicaRun, ask: Any) -> Any:
    known, was = run.losses, run.losses.alone
    known.alone = True
    try:
        return tf.identity(ask())
    finally:
        known.alone = was


def _weighed(run: replica.ReplicaRun, value: Any) -> Any:
    """A loss of one replica in a step that adds up weighed ones."""
    known = run.losses
    known.count_once()
    whole = known.whole(value)
    if known.trains or run.samples is None:
        known.mark(whole, Term.SUM)
        return whole
    # A test step weighs by 1 / replicas, and its logs by samples.
    whole *= _share_again(run, whole.dtype) / run.context.num_replicas_in_sync
    known.mark(whole, Term.PART)
    return whole


def _weigh_once(original):
    """What `add_loss` was given is weighed by what it is: a `keras.losses` object has done so."""

    @functools.wraps(original)
    def _aggregate_additional_loss(self, loss):
        run = replica.current()
        if run is None or run.losses is None:
            return original(self, loss)
        known = run.losses
        if not known.alone and known.is_mean(loss):
            return original(self, loss)
        value = Trainer._aggregate_additional_loss(self, loss)
        if known.alone or known.is_weighed(loss):
            return value
        return _weighed(run, value)

    return _aggregate_additional_loss


def _weigh_gradients(original):
    """The gradient by weights, in a step that is written for one machine: see `Losses`."""

    @functools.wraps(original)
    def gradient(self, target, sources, output_gradients=None, *more, **options):
        run = replica.current()
        known = run.losses if run is not None else None
        targets = tf.nest.flatten(target)
        weighs = known is not None and known.alone and any(map(_is_variable, tree.flatten(sources)))
        if known is None or not weighs or not all(map(tf.is_tensor, targets)):
            return original(self, target, sources, output_gradients, *more, **options)
        if self._recording and not self._persistent:
            self._pop_tape()  # as the original does
        if not pywrap_tfe.TFE_Py_TapeSetIsEmpty():
            # What another tape watches is a part of a loss, such as a penalty, or perhaps not.
            gradients = original(self, target, sources, output_gradients, *more, **options)
            known.remember_unweighed(targets, tree.flatten(gradients))
            return gradients
        above = tf.nest.flatten(output_gradients) if output_gradients is not None else None

        def differentiate(parts, slopes):
            return original(self, parts, sources, slopes, *more, **options)

        return known.gradient(differentiate, targets, above or [None] * len(targets))

    return gradient


def _is_variable(source: Any) -> bool:
    return isinstance(source, tf.Variable | backend.Variable | tf.distribute.DistributedValues)


def _log_whole_losses(original):
    """A metric that is given a loss as one number holds one worker's."""

    @functools.wraps(original)
    def update_state(self, values, sample_weight=None):
        run = replica.current()
        known = run.losses if run is not None else None
        if known is not None and sample_weight is None:
            sample_weight = known.batch.get(id(self))
        # In a step of Keras's own, what has a weight is what Keras logs.
        theirs = known is None or not (known.alone or sample_weight is None)
        if run is None or known is None or theirs or not _is_number(values):
            return original(self, values, sample_weight)
        if known.is_fixed(values) or (known.is_mean(values) and run.samples is None):
            return original(self, values, sample_weight)
        known.count_once()
        share = known.share(values.dtype)
        whole = tf.math.divide_no_nan(known.whole(values), share)
        if sample_weight is None and run.samples is not None:
            sample_weight = share
        return original(self, whole, sample_weight)

    return update_state


def _stated_by_script(original):
    """TensorFlow's functions divide by the number of replicas, and so state a loss's weight."""

    @functools.wraps(original)
    def stated(*args, **kwargs):
        value = original(*args, **kwargs)
        run = replica.current()
        if run is None or run.losses is None:
            return value
        by_replicas = len(args) < 3 and kwargs.get("global_batch_size") is None
        if by_replicas and run.samples is not None:
            replicas = run.context.num_replicas_in_sync
            value *= run.losses.share(value.dtype) * replicas
        run.losses.mark(value, Term.SUM)
        return value

    return stated


def _count_losses_by_samples(original):
    """The loss of each of several outputs, averaged over samples instead of over batches.

    CompileLoss weighs a batch by the static size of its batch dimension, which `fit` never
    knows, so that a short last batch counts as much as a full one.
    """

    @functools.wraps(original)
    def call(self, y_true, y_pred, sample_weight=None):
        first = tf.convert_to_tensor(tree.flatten(y_pred)[0])
        batch = tf.cast(tf.shape(first)[0], tf.float32)
        run = replica.current()
        if run is not None and run.losses is not None:
            # Replicas of one process take turns in here, and the metrics are the same objects.
            run.losses.batch = {id(metric): batch for metric in self.metrics or []}
            try:
                return original(self, y_true, y_pred, sample_weight)
            finally:
                run.losses.batch = {}
        # A build inside this call makes further metrics: their first batch is the symbolic one.
        metrics = list(self.metrics or [])
        for metric in metrics:
            metric.update_state = functools.partial(_update_by, batch, metric)
        try:
            return original(self, y_true, y_pred, sample_weight)
        finally:
            for metric in metrics:
                del metric.update_state

    return call


def _update_by(batch, metric, values, sample_weight=None):
    weight = batch if sample_weight is None else sample_weight
    return type(metric).update_state(metric, values, sample_weight=weight)
