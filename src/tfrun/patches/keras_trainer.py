"""Keras's TensorFlow trainer, under `fit`, `evaluate` and `predict`, for many workers.

keras-team/keras#20585: under MultiWorkerMirroredStrategy `fit` fails on its first step, twice:
`_maybe_symbolic_build` reduces a whole batch, and the logs are reduced along an axis they lack.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import keras
import tensorflow as tf
from keras import tree

from tfrun.data.keras import feed
from tfrun.engine import (
    adopted_script,
    adoption,
    empty_step,
    multi_step_function,
    own_steps,
    replica,
    step_losses,
    steps_in_turn,
    trained_model,
)
from tfrun.engine.gradient_sums import check_scope
from tfrun.engine.step_logs import StepLogs
from tfrun.engine.trained_model import in_place_of, is_repaired, mean_of_logs
from tfrun.job.errors import TfrunError
from tfrun.ps import server_strategy
from tfrun.ps.errors import not_everywhere


def adopt_script(original):
    """A model of a script that names no strategy is the job's."""

    def __init__(self):
        original(self)
        adopted_script.adopt(self)

    return __init__


def build_from_local_batch(original):
    """Keras wants shapes and dtypes only, and gets them from this worker's own first batch.

    That is read where nothing else tells: to read is to take it away from a generator, or to have
    had a shuffle's first order. Keras catches no errors of data there.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        feeds = isinstance(iterator, feed.FeedEpochIterator)
        if feeds:
            counts = functools.partial(empty_step.count_batch, self, trains=iterator.trains)
            iterator.when_out = counts
        with iterator.coded_errors() if feeds else contextlib.nullcontext():
            _build(functools.partial(original, self), self, iterator, data_batch)

    return _maybe_symbolic_build


def _build(original, model, iterator, data_batch):
    strategy = model._distribute_strategy
    if is_repaired(strategy):
        check_scope(model.optimizer, strategy)
    feeds = isinstance(iterator, feed.FeedEpochIterator)
    known = getattr(iterator, "symbolic_batch", lambda: None)()
    if not strategy and iterator is not None and trained_model.builds_first(model):
        # Nothing is read: an undisturbed run reads nothing here either.
        model._symbolic_build(data_batch=iterator.element_spec if known is None else known)
        return
    own = strategy and own_steps.has_own(model, own_steps.STEPS)
    build = functools.partial(_build_from, original, model, own)
    if known is not None:
        build(None, known)
        return
    if strategy and iterator is not None and (is_repaired(strategy) or own):
        if feeds and _is_built_from(build, model, iterator.symbolic_batch(partly=True)):
            return
        if feeds and (iterator.goes_on or iterator.is_given_again):
            return  # it has been built from this data
        local = strategy.experimental_local_results
        read = next((next(batches, None) for *_, batches in iterator), None)
        if read is None:
            return  # there is no data, and nothing will be computed
        data_batch = tree.map_structure(lambda leaf: _of_any_size(local(leaf)[0]), read)
        iterator = None
    build(iterator, data_batch)


def _is_built_from(build, model, batch):
    """Whether a model could be built from what is known of a batch."""
    if batch is None:
        return False
    try:
        build(None, batch)
    except Exception:  # a layer has to know more: Keras hides which error that was
        return False
    return all(layer.built for layer in model._flatten_layers())


def _build_from(original, model, own, iterator, data_batch):
    if own:
        own_steps.build(model, functools.partial(original, data_batch=data_batch), data_batch)
    else:
        original(iterator=iterator, data_batch=data_batch)


def _of_any_size(leaf):
    """A tensor of a worker's part of a batch, whose size is of no whole batch, and may be 0."""
    if not isinstance(leaf, tf.Tensor) or not leaf.shape.rank:
        return leaf
    return keras.KerasTensor((None, *leaf.shape[1:]), keras.backend.standardize_dtype(leaf.dtype))


def reduce_logs(original):
    """The logs of a step are this worker's own; those of all are made beside it (step_logs.py).

    Keras reduces each value of the logs in a collective of its own (about 1 ms each, every step).
    The logs of an epoch do not come from these: Keras reads the metrics themselves, and those
    add up over the workers.
    """

    def reduce_per_replica(values, strategy, reduction):
        if not is_repaired(strategy) or reduction not in ("auto", "mean"):
            return original(values, strategy, reduction)
        return tree.map_structure(lambda leaf: _local_mean(leaf, strategy), values)

    return reduce_per_replica


def _local_mean(value, strategy):
    copies = strategy.experimental_local_results(value)
    return copies[0] if len(copies) == 1 else tf.reduce_mean(tf.stack(copies), axis=0)


def agree_on_last_logs(original):
    """A `train_step` may return other logs than the metrics: then the last step's are the epoch's.

    They must not differ between workers, or callbacks would decide differently. What a step
    returns of a metric is this worker's part of it: that metric itself is read over all workers.
    """

    def _get_metrics_result_or_logs(self, logs):
        resumed = not logs and trained_model.resumed_logs(self)
        logs = resumed or logs
        whole = set(getattr(self, step_losses.LOGGED_METRICS, ())) if logs else set()
        result = original(self, logs)
        strategy = self.distribute_strategy
        if result is logs and is_repaired(strategy):
            if logs is strategy.whole_logs or (resumed and strategy.step_logs == "global"):
                return logs  # a worker that has come since has made no step
            found = self.get_metrics_result() if whole else {}
            turns = replica.turns_of(strategy)
            if turns is None or not (turns.is_divided_anew and isinstance(logs, dict)):
                return in_place_of(mean_of_logs(logs, strategy), whole, found)
            # Those that were kept of a step are told already: what a metric holds stands by itself.
            single = {metric.name for metric in self.metrics}
            held = found.keys() - single if whole - found.keys() else set()
            means = trained_model.logs_of_known(logs, strategy, turns)
            return in_place_of(means, (whole & found.keys()) | held, found)
        return result

    return _get_metrics_result_or_logs


def refuse_to_compile(original):
    """XLA has no all-reduce between processes: say so before TensorFlow fails obscurely.

    Nor could it on GPUs, where a step has variables on the CPU besides.

    A script that was written for one process gets its steps without XLA, and a line that says so.
    """

    def make_train_function(self, force=False):
        strategy = self.distribute_strategy
        if self.jit_compile and is_repaired(strategy) and strategy.num_replicas_in_sync > 1:
            several = replica.turns_of(strategy) or strategy.extended._in_multi_worker_mode()
            if several:
                if strategy is not adoption.given():
                    raise _not_compiled()
                adopted_script.tell(
                    "jit_compile=True is left out of training: XLA cannot compile the all-reduce "
                    "between workers"
                )
                self.jit_compile = False
        return original(self, force=force)

    return make_train_function


def _not_compiled():
    return TfrunError(
        "TFRUN-505",
        "jit_compile=True does not work across workers: XLA cannot compile "
        "the all-reduce of the gradients",
        where="model.compile",
        fix="Leave jit_compile at 'auto', or compile the forward pass alone with "
        "@tf.function(jit_compile=True)",
    )


def take_results_for_batches(original):
    """Models on parameter servers: the workers compute, and each "batch" is a result of theirs."""
    attribute = original.__name__.removeprefix("make_")

    def make(self, force=False):
        if server_strategy.strategy_of(self) is None:
            return original(self, force=force)
        setattr(self, attribute, _result)
        return None

    return make


def _result(ended: Any) -> Any:
    """What a train function returns: for `predict`, Keras hands over a list of results."""
    return ended[0] if isinstance(ended, list) else ended.result


def count_executions(original):
    """Gives models that have `Executions` a train function of that kind.

    Others that make several steps in a call count them.
    """

    def _make_function(self, step_function):
        make = functools.partial(original, self, step_function)
        if step_function in (self.train_step, self.test_step):
            turns = replica.turns_of(self.distribute_strategy)
            made = steps_in_turn.function(self, step_function, turns) if turns else None
            if made is not None:
                return made
        if step_function != self.train_step:
            return make()
        multi_step_function.count_no_steps(self)
        counted = multi_step_function.of(self)
        if counted is not None:
            return counted.function(self, step_function)
        return make() if self.steps_per_execution == 1 else multi_step_function.counted(self, make)

    return _make_function


def see_logs_of_all(original):
    """What a step returns is of all replicas where a callback looks at it."""

    def _make_function(self, step_function):
        made = original(self, step_function)
        has_logs = step_function in (self.train_step, self.test_step)
        return StepLogs(made, self) if has_logs and is_repaired(self.distribute_strategy) else made

    return _make_function


def count_steps(original):
    """Each step of a train function that makes several in a call counts itself."""

    def _autoconvert_optionals(self, step_func):
        return multi_step_function.counting(self, original(self, step_func))

    return _autoconvert_optionals


def agree_on_batch_logs(original):
    """`train_on_batch` and `test_on_batch` give the mean over the workers' own batches."""

    def on_batch(self, *args, **kwargs):
        logs = original(self, *args, **kwargs)
        strategy = self.distribute_strategy
        if not is_repaired(strategy):
            return logs
        mean = mean_of_logs(logs, strategy)
        return tree.map_structure(lambda x: x.numpy().tolist() if tf.is_tensor(x) else x, mean)

    return on_batch


def refuse_on_servers(original):
    """A call on one batch has no meaning where the workers read the data."""

    def on_batch(self, *args, **kwargs):
        if server_strategy.strategy_of(self) is not None:
            raise not_everywhere(f"model.{original.__name__}")
        return original(self, *args, **kwargs)

    return on_batch


def read_feeds(original):
    """`fit`, `evaluate` and `predict` take a `tfrun.Dataset`, and read other data as it is shared.

    They look the class up under this name each time.
    """
    del original  # ours is made of it
    return feed.FeedEpochIterator
