"""What tfrun's synchronous strategies have in common, as two mixins; `MirroredStrategy` with them.

`SynchronousStrategy` goes before a `tf.distribute.Strategy`, `SynchronousExtended` before its
`extended`: together they let each replica of a `run` know its `ReplicaRun`, which the repairs of
the optimizer, the layer state and the trainer work with.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from tensorflow.python.distribute import distribute_lib, mirrored_strategy
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from tfrun.engine import (
    across_samples,
    commit,
    gradient_sums,
    keras_state,
    loop_calls,
    loop_refusals,
    loop_traces,
    outside_run,
    replica,
    script_calls,
    script_lines,
    step_clock,
    step_losses,
)
from tfrun.engine.variable_values import GLOBAL_SEED_GENERATOR
from tfrun.job.errors import TfrunError

KEYS_PER_STRATEGY = 1000
_PREDICTS = "keras.src.backend.tensorflow.trainer"  # joins what the workers predict
_strategies = itertools.count()


class SynchronousStrategy:
    """A strategy whose replicas compute together what one replica would have.

    Attributes:
      step_logs: what Keras's logs of one step hold. "local" is this worker's own value, which
        costs nothing; "global" is what one worker would log, in one small collective. Logs of an
        epoch are always those of the whole data.
      whole_logs: the newest step's, where they are global.
      is_adopted: the script has named none, and workers share each batch whatever it is read from.
      stepping: refers to the model whose step has been run last, or traced; None for none.
    """

    step_logs: Literal["local", "global"] = "local"
    whole_logs: Any = None
    is_adopted = False
    stepping: weakref.ref | None = None

    @property
    def num_replicas_in_sync(self) -> int:
        who = sys._getframe(1).f_globals.get("__name__", "")
        step_losses.note_who_asks(who)
        calls = getattr(getattr(self, "_extended", None), "_host_calls", None)
        turns = getattr(calls, "turns", None)  # no call: it is asked in each step
        if turns is None or who == _PREDICTS:
            return super().num_replicas_in_sync  # type: ignore[misc]
        return turns.total

    @functools.cached_property
    def _collective_key_base(self) -> int:
        """Where this strategy's collective keys begin, read by TensorFlow's `extended`.

        TensorFlow begins at 1 for each strategy, so that a second one in the same process takes
        the first one's keys, and fails with "Shape mismatch in the collective instance".
        Workers make their strategies in the same order, so they agree.
        """
        return next(_strategies) * KEYS_PER_STRATEGY

    def run(self, fn, args=(), kwargs=None, options=None):
        if _calls_reduce(sys._getframe(1)) and not tf.executing_eagerly():
            return super().run(fn, args, kwargs, options)  # type: ignore[misc]
        if outside_run.is_inside():
            raise outside_run.inside_another()
        turns = replica.turns_of(self)
        if turns is not None and not loop_traces.is_tracing():
            if isinstance(fn, polymorphic_function.Function):
                found = loop_calls.made(run_by(self, fn), args, kwargs or {}, known_as=fn)
                if found is not None:
                    return found[0]
            _check_is_keras(turns)
        if isinstance(fn, polymorphic_function.Function):
            # Wrapping it in Python would let the replicas run one after the other, and
            # collectives wait for each other for ever: the wrapper goes inside.
            if fn not in self._functions:
                # `_clone` keeps the options of `@tf.function`, as TensorFlow itself relies on.
                wrapped = fn._clone(python_function=_in_run(fn.python_function))
                self._functions[fn] = wrapped
            fn = self._functions[fn]
        else:
            fn = _in_run(fn)
        with _calling("strategy.run"), _shared_seeds(self.seed_generators):
            return super().run(fn, args, kwargs, options)  # type: ignore[misc]

    def distribute_datasets_from_function(self, dataset_fn, options=None):
        if script_lines.is_script(sys._getframe(1).f_code.co_filename):
            loop_refusals.note_distributed()
        return super().distribute_datasets_from_function(dataset_fn, options)  # type: ignore

    def reduce(self, reduce_op, value, axis):
        # TensorFlow's iterators ask so whether all workers have a batch.
        by_tensorflow = sys._getframe(1).f_code.co_filename.startswith(script_lines.TENSORFLOW)
        turns = None if by_tensorflow else replica.turns_of(self)
        with _calling("strategy.reduce"):
            parts = loop_calls.parts_to_reduce(turns, value, axis)
            if parts is not None:
                calls = self.extended._host_calls  # type: ignore[attr-defined]
                return loop_calls.reduced(calls, reduce_op, parts)
            return super().reduce(reduce_op, value, axis)  # type: ignore[misc]

    def gather(self, value, axis):
        with _calling("strategy.gather"):
            return super().gather(value, axis)  # type: ignore[misc]

    @functools.cached_property
    def assigned_in_functions(self) -> list:
        """Layer state that functions which a `run` calls assign (see keras_state.py).

        Held for as long as the strategy: what the garbage collector has found on one worker and
        not yet on another would change what they reduce, and they would wait for each other.
        """
        return []

    @functools.cached_property
    def seed_generators(self) -> dict:
        """What each of this worker's replicas draws from without a seed, by its local number."""
        return {}

    @functools.cached_property
    def _functions(self) -> weakref.WeakKeyDictionary:
        """What `run` has made of each `tf.function`, so that none is traced anew."""
        return weakref.WeakKeyDictionary()


class SynchronousExtended:
    """The `extended` of a `SynchronousStrategy`."""

    def _use_merge_call(self) -> bool:
        # While reduced gradients are applied every replica updates its own copies. Nothing has
        # to be merged, and a merge is not possible in the `tf.cond` of Keras's gradient
        # accumulation, moving averages and loss scaling.
        run = replica.current()
        if run is not None and run.updating:
            return False
        return super()._use_merge_call()  # type: ignore[misc]


class MirroredExtended(SynchronousExtended, mirrored_strategy.MirroredExtended):
    """Everything that is TensorFlow's own, and what tfrun changes in it."""


class Mirrored(SynchronousStrategy, mirrored_strategy.MirroredStrategy):
    """Synchronous training on several devices, with the numbers of one.

    Takes the arguments of `tf.distribute.MirroredStrategy` and is one.
    """

    def __init__(self, devices=None, cross_device_ops=None):
        extended = MirroredExtended(self, devices=devices, cross_device_ops=cross_device_ops)
        # Not upstream's __init__: it would make upstream's `extended`.
        distribute_lib.Strategy.__init__(self, extended)


def _check_is_keras(turns: Any) -> None:
    """Refuses what nobody makes for each replica of a worker (see loop_calls.py).

    Raises:
      TfrunError: TFRUN-518.
    """
    frame = sys._getframe(1)
    while frame and _package(frame) in ("tensorflow", "tfrun"):
        frame = frame.f_back
    if frame is not None and _package(frame) == "keras":
        return
    if (
        not loop_refusals.note_one_each("it is in a loop of the script's own")
        and not turns.one_each
    ):
        raise TfrunError(
            "TFRUN-518",
            "the script calls strategy.run itself, outside of a step of its loop or without a "
            f"tf.function, and the job has {turns.total} replicas",
            where="strategy.run",
            expected="a tf.function that is called with a batch of TrainState.steps, or of data "
            "that the strategy has distributed",
            fix="Call strategy.run in such a tf.function, or put the step into a train_step and "
            "call fit; or leave out --replicas",
        )


def run_by(strategy: Any, function: Any) -> Callable[..., Any]:
    """A function's call by `strategy.run`."""
    return functools.partial(_run_on, strategy, function)


def _run_on(strategy: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    return strategy.run(function, args, kwargs)


def _calls_reduce(frame: Any) -> bool:
    """Whether it is TensorFlow that runs something, to add up along an axis: no step of its own."""
    code = frame.f_code
    return code.co_name == "reduce" and code.co_filename.startswith(script_lines.TENSORFLOW)


def _package(frame: Any) -> str:
    return frame.f_globals.get("__name__", "").partition(".")[0]


def _calling(call: str):
    """`script_calls.calling`, where it is the script that calls, and does not only trace."""
    by_script = tf.executing_eagerly() and script_lines.is_script(
        sys._getframe(2).f_code.co_filename
    )
    return script_calls.calling(call) if by_script else contextlib.nullcontext()


def _in_run(fn):
    """`fn` as a part of a run of ours."""
    convert = tf.__internal__.autograph.tf_convert
    context = tf.__internal__.autograph.control_status_ctx()

    @tf.autograph.experimental.do_not_convert
    def on_replica(*args, **kwargs):
        function = replica.bound(fn)
        args, kwargs = _of_any_size((args, kwargs))
        with (
            replica.replica_run() as run,
            step_clock.around_step(run, (args, kwargs)) as (given, results),
        ):
            args, kwargs = given
            run.batch = None if _is_kerass(function) else _without_size(given)
            with _behind(args), step_losses.of_step(run, function, args):
                result = convert(function, context, convert_by_default=False)(*args, **kwargs)
                across_samples.see(run, (args, kwargs))
                result = step_losses.logs_of_all(run, result)
            gradient_sums.apply_deferred(run)
            keras_state.average_assigned(run)
            results.append(commit.after_updates(run, result))
            return results[0]

    return on_replica


@contextlib.contextmanager
def _shared_seeds(generators: dict[int, Any]) -> Iterator[None]:
    """Has the first replica of the block draw from the seeds that `keras.random.…` draws from here.

    Keras holds that generator for each thread, and replicas run in threads of their own.

    Args:
      generators: those of a strategy, for each of this worker's replicas.
    """
    here = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    if here is not None:
        generators[0] = here
    yield
    if here is None and 0 in generators:
        global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, generators[0])


def _behind(nest: Any) -> contextlib.AbstractContextManager:
    """Has a step do nothing before its data is there, while a function is traced.

    What depends on none would be done where there is no more data as well, or would not be: that
    is a race. What plain Keras does there is up to empty_step.py.
    """
    leaves = tf.nest.flatten(nest, expand_composites=True)
    tensors = [leaf for leaf in leaves if isinstance(leaf, tf.Tensor)]
    is_traced = tensors and not tf.executing_eagerly()
    return tf.control_dependencies(tensors) if is_traced else contextlib.nullcontext()


def _is_kerass(function: Any) -> bool:
    """Whether a run is of Keras's own loop, whose steps know what an empty batch is."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or ""
    return isinstance(owner, keras.Model) or module.partition(".")[0] == "keras"


def _without_size(nest: Any) -> Any | None:
    """The first of the leaves that may be without a row."""
    for leaf in tf.nest.flatten(nest):
        if isinstance(leaf, tf.Tensor) and leaf.shape.rank and not leaf.shape[0]:
            return leaf
    return None


def _of_any_size(nest: Any) -> Any:
    """Returns `nest`, while a function is traced, with the size of batches without a row unknown.

    A batch that is taken outside of the step (in `predict`, and in loops over a distributed
    dataset) has a known size, and where that is 0, layers take it for something else: Keras's
    `ops.add` looks for a bias in what it adds, by dimensions of at most 1, finds one in an
    array of shape (0, units), and LSTM and GRU fail.
    """

    def leaf_of_any_size(leaf: Any) -> Any:
        if not isinstance(leaf, tf.Tensor) or not leaf.shape.rank or leaf.shape[0] != 0:
            return leaf
        return tf.compat.v1.placeholder_with_default(leaf, [None, *leaf.shape[1:]])

    return nest if tf.executing_eagerly() else tf.nest.map_structure(leaf_of_any_size, nest)
