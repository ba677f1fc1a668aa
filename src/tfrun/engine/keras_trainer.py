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

from tfrun.engine import commit, keras_losses, own_steps, replica, step_clock
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


def build_first(model, wanted: bool) -> None:
    """Has a model without a strategy make its metrics before its first step, as others do."""
    object.__setattr__(model, _BUILD_FIRST, wanted)  # past Keras's tracking


def _build_from_local_batch(original):
    """Keras wants shapes and dtypes only, and gets them from this worker's own first batch.

    That is read where nothing else tells: to read is to take it away from a generator, or to have
    had a shuffle's first order.
    """

    @functools.wraps(original)
    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        strategy = self._distribute_strategy
        if is_repaired(strategy):
            check_scope(self.optimizer, strategy)
        known = getattr(iterator, "symbolic_batch", lambda: None)()
        if known is not None:
            data_batch, iterator = known, None
            if not strategy and getattr(self, _BUILD_FIRST, False):
                self._symbolic_build(data_batch=known)
                return None
        if not strategy and iterator is not None and getattr(self, _BUILD_FIRST, False):
            # Nothing is read: an undisturbed run reads nothing here either.
            self._symbolic_build(data_batch=iterator.element_spec)
            return None
        own = strategy and own_steps.has_own(self, own_steps.STEPS)
        if strategy and iterator is not None and (is_repaired(strategy) or own):
            local = strategy.experimental_local_results
            read = next((next(batches, None) for *_, batches in iterator), None)
            if read is None:
                return None  # there is no data, and nothing will be computed
            data_batch, iterator = tree.map_structure(lambda leaf: local(leaf)[0], read), None
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
    leaves = [
        tf.constant(leaf, tf.float64) if isinstance(leaf, float) else tf.convert_to_tensor(leaf)
        for leaf in tree.flatten(local)
    ]
    if not leaves or not strategy.extended._in_multi_worker_mode():
        return local
    dtype = tf.float64 if any(leaf.dtype == tf.float64 for leaf in leaves) else tf.float32
    packed = tf.concat([tf.reshape(tf.cast(leaf, dtype), [-1]) for leaf in leaves], 0)
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

    They must not differ between workers, or callbacks would decide differently. What a step
    returns of a metric is this worker's part of it: that metric itself is read over all workers.
    """

    @functools.wraps(original)
    def _get_metrics_result_or_logs(self, logs):
        whole = getattr(self, keras_losses.LOGGED_METRICS, ()) if logs else ()
        if not logs:
            logs = getattr(self, "_tfrun_resumed_logs", None) or logs
        result = original(self, logs)
        strategy = self.distribute_strategy
        if result is logs and is_repaired(strategy):
            found = self.get_metrics_result() if whole else {}
            mean = mean_over_workers(logs, strategy)
            return {
                name: _read_over_all(name, value, found) if name in whole else value
                for name, value in mean.items()
            }
        return result

    return _get_metrics_result_or_logs


def _read_over_all(name, logged, found):
    """What `found` has of a metric, or of each that a metric holds, as that of `compile` does."""
    if isinstance(logged, dict):
        return {inner: _read_over_all(inner, value, found) for inner, value in logged.items()}
    return found.get(name, logged)


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


def begin_step(run: replica.ReplicaRun, step) -> None:
    """Tells a run of Keras's training step whose it is.

    Args:
      run: the current run.
      step: the function that runs.
    """
    owner: Any = getattr(step, "__self__", None)
    is_keras = inspect.ismethod(step) and isinstance(owner, trainer.TensorFlowTrainer)
    if not is_keras or getattr(step, "__name__", "") != "train_step":
        return
    # Keras's own step and metrics: they update the weights before the metrics, but nothing in them
    # depends on that order.
    own = own_steps.has_own(owner, ("train_step", "compute_metrics"))
    if commit.of(owner.optimizer) is not None and not own:
        # The metrics of this step then travel with its gradients.
        run.deferred = []
