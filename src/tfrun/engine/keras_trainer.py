"""Repairs of Keras's TensorFlow trainer (`fit`, `evaluate`) for many workers.

keras-team/keras#20585: under MultiWorkerMirroredStrategy `fit` fails on its first step, twice:
`_maybe_symbolic_build` reduces a whole batch, and the logs are reduced along an axis they lack.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import tensorflow as tf
from keras import tree
from keras.src.backend.tensorflow import trainer
from keras.src.losses import loss as losses
from keras.src.trainers import compile_utils
from keras.src.trainers.data_adapters import data_adapter_utils

from tfrun.engine import commit, own_steps, replica, step_clock
from tfrun.engine.keras_optimizer import check_scope
from tfrun.job.errors import TfrunError

_BUILD_FIRST = "_tfrun_build_first"


def is_repaired(strategy) -> bool:
    """Whether `strategy` is one of tfrun's synchronous strategies."""
    return hasattr(strategy, "step_logs")


def repair_trainer() -> None:
    """Applies this module's repairs; once."""
    if hasattr(trainer.reduce_per_replica, "__wrapped__"):
        return
    trainer.reduce_per_replica = _reduce_logs(trainer.reduce_per_replica)
    cls = trainer.TensorFlowTrainer
    cls._maybe_symbolic_build = _build_from_local_batch(cls._maybe_symbolic_build)
    cls._get_metrics_result_or_logs = _agree_on_last_logs(cls._get_metrics_result_or_logs)
    cls.make_train_function = _refuse_to_compile(cls.make_train_function)
    cls.train_on_batch = _agree_on_batch_logs(cls.train_on_batch)
    cls.test_on_batch = _agree_on_batch_logs(cls.test_on_batch)
    compile_utils.CompileLoss.call = _count_losses_by_samples(compile_utils.CompileLoss.call)
    losses.scale_loss_for_distribution = _weigh(losses.scale_loss_for_distribution)
    losses.unscale_loss_for_distribution = _unweigh(losses.unscale_loss_for_distribution)


def build_first(model, wanted: bool) -> None:
    """Has a model without a strategy make its metrics before its first step, as others do."""
    object.__setattr__(model, _BUILD_FIRST, wanted)  # past Keras's tracking


def _build_from_local_batch(original):
    """Keras wants shapes and dtypes only, and gets them from this worker's own first batch."""

    @functools.wraps(original)
    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = self._distribute_strategy
        if is_repaired(strategy):
            check_scope(self.optimizer, strategy)
        if not strategy and iterator is not None and getattr(self, _BUILD_FIRST, False):
            # Nothing is read: an undisturbed run reads nothing here either.
            self._symbolic_build(data_batch=iterator.element_spec)
            return None
        own = strategy and own_steps.has_own_step(self)
        if strategy and iterator is not None and (is_repaired(strategy) or own):
            local = strategy.experimental_local_results
            for *_, batches in iterator:
                data_batch = tree.map_structure(lambda leaf: local(leaf)[0], next(batches))
                break
            iterator = None
        if own:
            by_calling = functools.partial(original, self, data_batch=data_batch)
            return own_steps.build(self, by_calling, data_batch)
        return original(self, iterator=iterator, data_batch=data_batch)

    return _maybe_symbolic_build


def _reduce_logs(original):
    """The logs of a step: this worker's own, or the mean over all replicas in one collective.

    Keras reduces each value of the logs in a collective of its own (about 1 ms each, every step).
    The logs of an epoch do not come from these: Keras reads the metrics themselves, and those
    add up over the workers.
    """

    @functools.wraps(original)
    def reduce_per_replica(values, strategy, reduction):
        if not is_repaired(strategy) or reduction not in ("auto", "mean"):
            return original(values, strategy, reduction)
        local = tree.map_structure(lambda leaf: _local_mean(leaf, strategy), values)
        return local if strategy.step_logs == "local" else mean_over_workers(local, strategy)

    return reduce_per_replica


def _local_mean(value, strategy):
    copies = strategy.experimental_local_results(value)
    return copies[0] if len(copies) == 1 else tf.reduce_mean(tf.stack(copies), axis=0)


def mean_over_workers(local, strategy):
    """The mean over the workers of every number in `local`, in one collective.

    Args:
      local: a nested structure of numbers and tensors, of the same shapes on all workers.
      strategy: one of tfrun's strategies. All workers must call this.

    Returns:
      The same structure of tensors; `local` itself when there is one worker.
    """
    leaves = [tf.convert_to_tensor(leaf) for leaf in tree.flatten(local)]
    if not leaves or not strategy.extended._in_multi_worker_mode():
        return local
    packed = tf.concat([tf.reshape(tf.cast(leaf, tf.float32), [-1]) for leaf in leaves], 0)
    reduce = functools.partial(strategy.reduce, tf.distribute.ReduceOp.MEAN, packed, axis=None)
    means = step_clock.mean_of_logs(strategy, packed, reduce)
    parts = tf.split(means, [tf.size(leaf) for leaf in leaves])
    return tree.pack_sequence_as(
        local,
        [
            tf.cast(tf.reshape(part, tf.shape(leaf)), leaf.dtype)
            for part, leaf in zip(parts, leaves, strict=True)
        ],
    )


def _refuse_to_compile(original):
    """XLA has no all-reduce between processes on CPUs: say so before TensorFlow fails obscurely."""

    @functools.wraps(original)
    def make_train_function(self, force=False):
        strategy = self.distribute_strategy
        if self.jit_compile and is_repaired(strategy) and strategy.num_replicas_in_sync > 1:
            on_cpu = any("CPU" in device for device in strategy.extended.worker_devices)
            if on_cpu and strategy.extended._in_multi_worker_mode():
                raise TfrunError(
                    "TFRUN-505",
                    "jit_compile=True does not work across workers on CPUs: XLA cannot compile "
                    "the all-reduce of the gradients",
                    where="model.compile",
                    fix="Leave jit_compile at 'auto', or compile the forward pass alone with "
                    "@tf.function(jit_compile=True)",
                )
        return original(self, force=force)

    return make_train_function


def resume_with_logs(model, logs: dict[str, float] | None) -> None:
    """States the logs of an epoch whose steps were all done before the script ran again."""
    object.__setattr__(model, "_tfrun_resumed_logs", logs)  # past Keras's tracking


def _agree_on_last_logs(original):
    """A `train_step` may return other logs than the metrics: then the last step's are the epoch's.

    They must not differ between workers, or callbacks would decide differently.
    """

    @functools.wraps(original)
    def _get_metrics_result_or_logs(self, logs):
        if not logs:
            logs = getattr(self, "_tfrun_resumed_logs", None) or logs
        result = original(self, logs)
        strategy = self.distribute_strategy
        if result is logs and is_repaired(strategy):
            return mean_over_workers(logs, strategy)
        return result

    return _get_metrics_result_or_logs


def _agree_on_batch_logs(original):
    """`train_on_batch` and `test_on_batch` give the mean over the workers' own batches."""

    @functools.wraps(original)
    def on_batch(self, *args, **kwargs):
        logs = original(self, *args, **kwargs)
        strategy = self.distribute_strategy
        if not is_repaired(strategy):
            return logs
        mean = mean_over_workers(logs, strategy)
        return tree.map_structure(lambda x: x.numpy().tolist() if tf.is_tensor(x) else x, mean)

    return on_batch


def begin_step(run: replica.ReplicaRun, step, args: tuple[Any, ...]) -> None:
    """Tells a run of Keras's training step whose it is, and how many samples it has.

    Args:
      run: the current run.
      step: the function that runs.
      args: its arguments on this replica.
    """
    owner: Any = getattr(step, "__self__", None)
    is_keras = inspect.ismethod(step) and isinstance(owner, trainer.TensorFlowTrainer)
    if not is_keras or getattr(step, "__name__", "") != "train_step":
        return
    if commit.of(owner.optimizer) is not None and commit.is_keras_step(owner):
        # The metrics of this step then travel with its gradients.
        run.deferred = []
    _count_samples(run, args)


def _count_samples(run: replica.ReplicaRun, args: tuple[Any, ...]) -> None:
    """Lets a short batch of Keras's own training step count by its true number of samples.

    Keras gives each replica's mean loss the weight 1 / replicas, which is wrong when the last
    batch of an epoch leaves the replicas with different counts. Only batches without a static
    size can differ, and only they pay for the sum: one scalar, reduced while the forward pass
    runs. A custom training loop states its own weights and is left alone.

    Gives the run its `samples` and `all_samples`.
    """
    if run.context.num_replicas_in_sync == 1 or not args:
        return
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
        if run is None or run.samples is None:
            return original(value)
        over = []
        if not run.reduced:  # the others' counts may not be there yet; after that they are
            since = step_clock.waiting(run, [run.samples, value])
            over = step_clock.waited(run, since, [run.all_samples])
        with tf.control_dependencies(over):  # before backpropagation, which follows from the share
            share = run.samples / run.all_samples
        return value * tf.cast(share, value.dtype)

    return scale_loss_for_distribution


def _unweigh(original):
    @functools.wraps(original)
    def unscale_loss_for_distribution(value):
        run = replica.current()
        if run is None or run.samples is None:
            return original(value)
        return value * tf.cast(tf.math.divide_no_nan(run.all_samples, run.samples), value.dtype)

    return unscale_loss_for_distribution


def _count_losses_by_samples(original):
    """The loss of each of several outputs, averaged over samples instead of over batches.

    CompileLoss weighs a batch by the static size of its batch dimension, which `fit` never
    knows, so that a short last batch counts as much as a full one.
    """

    @functools.wraps(original)
    def call(self, y_true, y_pred, sample_weight=None):
        first = tf.convert_to_tensor(tree.flatten(y_pred)[0])
        batch = tf.cast(tf.shape(first)[0], tf.float32)
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
