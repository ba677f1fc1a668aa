"""Makes Keras weigh losses over replicas as one worker would, whatever they are made of.

Keras multiplies each mean over a batch by 1 / replicas where a `keras.losses` object computes it,
and what `add_loss` was given once more (keras/src/losses/loss.py, `scale_loss_for_distribution`;
keras/src/backend/tensorflow/trainer.py, `_aggregate_additional_loss`). What a script computes
otherwise it leaves as it is, and what a step of the script's own logs is a fraction of the loss.
How losses are weighed instead: engine/step_losses.py.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from keras import tree
from keras.src import backend
from keras.src.losses import loss as losses
from keras.src.trainers.trainer import Trainer
from tensorflow.python import pywrap_tfe

from tfrun.engine import batch_statistics, replica, sizes
from tfrun.engine.loss_terms import MeanOver, Term
from tfrun.engine.step_clock import share_of
from tfrun.engine.step_losses import by_data, is_number, of_the_batch


def weigh(original):
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


def unweigh(original):
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


def weigh_by_mask(original):
    """A mean over the tokens that a mask leaves counts by them, not by samples.

    And a loss that is one number already, as a function of the script's may return it, Keras
    does not weigh at all.
    """

    def reduce_weighted_values(
        values, sample_weight=None, mask=None, reduction="sum_over_batch_size", dtype=None
    ):
        run = replica.current()
        ask = functools.partial(original, values, sample_weight, mask, reduction, dtype)
        if run is None or run.losses is None:
            return ask()
        numbers: Any = backend.convert_to_tensor(values, dtype=dtype)
        if run.losses.alone and run.losses.kind(numbers) is Term.PAIRS:
            run.losses.tell(numbers)
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


def weigh_own_calls(original):
    """What a loss class with a `__call__` of its own returns, Keras does not weigh at all."""

    def build(self, y_true, y_pred):
        original(self, y_true, y_pred)
        # Keras calls these as they stand in here, and asks them for nothing else.
        self._flat_losses = [
            each._replace(loss=functools.partial(_weighed_call, each.loss))
            if type(each.loss).__call__ is not losses.Loss.__call__
            else each
            for each in self._flat_losses
        ]

    return build


def _weighed_call(loss: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> Any:
    value = loss(y_true, y_pred, sample_weight)
    run = replica.current()
    known = run.losses if run is not None else None
    if run is None or known is None or known.alone or not is_number(value):
        return value
    return value if known.is_weighed(value) else _weighed(run, value)


def weigh_once(original):
    """What `add_loss` was given is weighed by what it is: a `keras.losses` object has done so."""

    def _aggregate_additional_loss(self, loss):
        run = replica.current()
        if run is None or run.losses is None:
            return original(self, loss)
        known = run.losses
        if not known.alone and known.is_mean(loss):
            if known.kind(loss) is Term.UNKNOWN:
                known.tell(loss)
            return original(self, loss)
        value = Trainer._aggregate_additional_loss(self, loss)
        if known.alone or known.is_weighed(loss):
            return value
        return _weighed(run, value)

    return _aggregate_additional_loss


def weigh_gradients(original):
    """The gradient by weights, in a step that is written for one machine: see `Losses`."""

    def gradient(self, target, sources, output_gradients=None, *more, **options):
        run = replica.current()
        known = run.losses if run is not None else None
        targets = tf.nest.flatten(target)
        weighs = known is not None and any(map(_is_variable, tree.flatten(sources)))
        if known is not None and weighs:
            batch_statistics.tell(known, targets)
        if known is not None and _is_by_data(known, targets) and not weighs:
            gradients = original(self, target, sources, output_gradients, *more, **options)
            return by_data(known, targets, tree.flatten(sources), gradients)
        if known is None or not weighs or not all(map(tf.is_tensor, targets)):
            return original(self, target, sources, output_gradients, *more, **options)
        if not known.alone:  # what it is the gradient of has its weight
            gradients = original(self, target, sources, output_gradients, *more, **options)
            return known.mark_gradients(gradients)
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

        gradients = known.gradient(differentiate, targets, above or [None] * len(targets))
        return known.mark_gradients(gradients)

    return gradient


def _is_by_data(known: Any, targets: list[Any]) -> bool:
    """Whether the script takes gradients of losses, in a step that is written for one machine."""
    return known.alone and not known.is_unseen and all(map(is_number, targets))


def _is_variable(source: Any) -> bool:
    return isinstance(source, tf.Variable | backend.Variable | tf.distribute.DistributedValues)


def log_whole_sums(original):
    """A sum of numbers of one step each, such as of its losses, is of one worker's numbers."""

    def update_state(self, values, sample_weight=None):
        run = replica.current()
        known = run.losses if run is not None else None
        if run is None or known is None or not known.alone or sample_weight is not None:
            return original(self, values, sample_weight)
        number: Any = backend.convert_to_tensor(values, dtype=self.dtype)
        if not is_number(number) or sizes.is_size(known, number):
            return original(self, values)
        if known.is_fixed(number):  # a one for each batch: the first replica's, without rounding
            is_first = tf.equal(run.number, 0)
            return original(self, tf.where(is_first, number, tf.zeros_like(number)))
        known.count_once()
        return original(self, known.whole(number))

    return update_state


def log_whole_losses(original):
    """A metric that is given a loss as one number holds one worker's."""

    def update_state(self, values, sample_weight=None):
        run = replica.current()
        known = run.losses if run is not None else None
        if known is not None and sample_weight is None:
            sample_weight = known.batch.get(id(self))
        # In a step of Keras's own, what has a weight is what Keras logs.
        theirs = known is None or not (known.alone or sample_weight is None)
        if run is None or known is None or theirs or not is_number(values):
            return original(self, values, sample_weight)
        centred = batch_statistics.is_centred(known, values)
        is_mean = known.is_mean(values) and not centred
        if known.is_fixed(values) or (is_mean and run.samples is None):
            return original(self, values, sample_weight)
        known.count_once()
        share = known.share(values.dtype)
        whole = of_the_batch(known, values) if centred else None
        if whole is None:
            whole = tf.math.divide_no_nan(known.whole(values), share)
        if sample_weight is None and run.samples is not None:
            sample_weight = share
            known.ones.add(id(share))
        return original(self, whole, sample_weight)

    return update_state


def note_stated_weights(original):
    """TensorFlow's functions divide by the number of replicas, and so state a loss's weight."""

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


def count_losses_by_samples(original):
    """The loss of each of several outputs, averaged over samples instead of over batches.

    CompileLoss weighs a batch by the static size of its batch dimension, which `fit` never
    knows, so that a short last batch counts as much as a full one.
    """

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
