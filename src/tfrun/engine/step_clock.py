"""Measures where the time of a traced step goes, by clocks in the graph that cost microseconds.

TensorFlow runs a whole step as one call, so Python cannot see when its batch was there or when it
began to wait for other workers. `tf.timestamp` can: one as soon as the step's arguments are there,
one when its last update is done, and a pair around each wait for the others. What lies between a
pair is added up in a variable, which somebody reads once a second.

TensorFlow also asks all workers, at each step, whether anybody has a batch left: a wait that comes
before the step's arguments are there. And where callbacks read the logs of each step, their mean
over the workers comes after its last update. Both have a variable of their own.

A wait begins when this worker's own part is done (its last gradient, or its own loss) and ends
when what was reduced is there: it holds the transfer and the time until the slowest worker has
come, but no part that backpropagation has hidden. The slowest worker itself hardly waits. On a GPU
the clocks tell when a kernel was handed over, not when it ended.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import config
from tensorflow.python.ops import control_flow_util

from tfrun.engine import replica

ORIGIN = "tfrun_origin"  # names a number in the graph that each process has for itself


class Times(NamedTuple):
    """Seconds of all steps so far, or the variables that hold them.

    Attributes:
      inside: from a step's arguments to its last update.
      waited: for other workers, inside.
      waited_for_input: for other workers, before.
      waited_for_logs: for other workers, after.
      arrived: the sum of the moments at which steps had their arguments, counted from `origin`.
    """

    inside: Any
    waited: Any
    waited_for_input: Any
    waited_for_logs: Any
    arrived: Any


class StepClock:
    """Adds up, over this worker's steps, what its first replica has measured.

    Attributes:
      origin: when it was made, in seconds since the epoch.
      waited_in_turn: tells how long steps have waited in which replicas of a worker take turns.
        Python waits there, and knows; the graph comes by a clock too late.
    """

    def __init__(self) -> None:
        self.origin = time.time()
        self.waited_in_turn: Callable[[], float] = float
        with tf.device("CPU:0"):
            zeros = [tf.zeros([], tf.float64) for _ in Times._fields]
            self.times = Times(*(tf.Variable(zero, trainable=False) for zero in zeros))

    def read(self) -> Times:
        """Returns the times of all steps so far."""
        times = Times(*(float(variable) for variable in self.times))
        return times._replace(waited=times.waited + self.waited_in_turn())


def of(strategy: Any) -> StepClock | None:
    """The clock of a strategy whose workers wait for each other."""
    return getattr(strategy, "step_clock", None)


@contextlib.contextmanager
def around_step(run: replica.ReplicaRun, args: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Measures the block if it turns out to be a training step.

    Args:
      run: the current run.
      args: the step's arguments, nested.

    Yields:
      What the step is to be called with, and a list for its results: the clock waits for them.
    """
    clock, results = _clock(run), []
    if clock is None:
        yield args, results
        return
    began = _when(tf.nest.flatten(args, expand_composites=True))
    yield _after(began, args), results
    if run.reduced:
        here = tf.compat.v1.get_default_graph()
        counts = [op for op in run.counts if getattr(op, "graph", None) is here]
        _add(clock.times.arrived, tf.constant(clock.origin, tf.float64, name=ORIGIN), began)
        _add(clock.times.inside, began, _when([*counts, *tf.nest.flatten(results)]))


def waiting(run: replica.ReplicaRun, own: Sequence[Any]) -> tf.Tensor | None:
    """The time at which this worker has nothing left to do but to wait; None where none is taken.

    Args:
      run: the current run.
      own: what it has computed itself.
    """
    run.reduced = True
    in_turn = replica.turns_of(run.context.strategy) is not None
    return None if in_turn or _clock(run) is None else _when(own)


def waited(
    run: replica.ReplicaRun, since: tf.Tensor | None, reduced: Sequence[Any]
) -> list[tf.Tensor]:
    """The wait is over once all of `reduced` is there.

    Returns:
      The time of it, if one is taken. What goes on with `reduced` for long has to depend on it: a
      worker with one thread for its ops looks at the clock after that otherwise.
    """
    clock = _clock(run)
    if clock is None or since is None:
        return []
    over = _when([since, *reduced])
    _add(clock.times.waited, since, over)
    return [over]


def timed(
    variable: tf.Variable, own: Sequence[Any], collective: Callable[[], tf.Tensor]
) -> tf.Tensor:
    """Returns what a collective gives; the wait for it begins when all of `own` is there."""
    since = _when(own)
    found = collective()
    _add(variable, since, _when([since, found]))
    return found


def _add(variable: tf.Variable, began: tf.Tensor, ended: tf.Tensor) -> None:
    with tf.device("CPU:0"):
        variable.assign_add(ended - began, read_value=False)


def _clock(run: replica.ReplicaRun) -> StepClock | None:
    clock = of(run.context.strategy)
    if clock is None or not run.is_first_here:
        return None
    return None if is_xla() else clock


def is_xla() -> bool:
    """XLA has no clocks."""
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def _after(began: tf.Tensor, args: Any) -> Any:
    """The arguments, for what has to come after `began`.

    A worker with one thread for its ops would look at the clock somewhere in the middle of the step
    otherwise, and count what lies before as a wait for input.
    """

    def tensors(arg: Any) -> Any:
        if isinstance(arg, tf.RaggedTensor | tf.SparseTensor):
            return tf.nest.map_structure(tf.identity, arg, expand_composites=True)
        return tf.identity(arg) if isinstance(arg, tf.Tensor) else arg

    if tf.executing_eagerly():
        return args
    with tf.control_dependencies([began]):
        return tf.nest.map_structure(tensors, args)


def _when(there: Sequence[Any]) -> tf.Tensor:
    """The time, in seconds, as soon as all of `there` is."""
    known = [x for x in there if isinstance(x, tf.Tensor | tf.Operation)]
    with tf.control_dependencies(known):
        return now()


def now() -> tf.Tensor:
    """The time at which the graph comes by, in seconds since the epoch; float64, scalar.

    TensorFlow's own clock refuses to run where it is to compute the same bits each time
    (`enable_op_determinism`): there Python is asked, which takes some 30 microseconds.
    """
    with tf.device("CPU:0"):
        if not config.is_op_determinism_enabled():
            return tf.timestamp()
        told = tf.numpy_function(lambda: np.float64(time.time()), [], tf.float64)
        told.set_shape([])
        return told


def share_of(run: replica.ReplicaRun, before: Sequence[Any], dtype: tf.DType) -> tf.Tensor:
    """A replica's share of the samples; what waits for the others' counts is measured.

    Args:
      run: a training step that knows its samples.
      before: what this worker has to compute before it waits.
      dtype: of what the share is for.
    """
    over = []
    if not run.reduced:  # the others' counts may not be there yet; after that they are
        since = waiting(run, [run.samples, *before])
        over = waited(run, since, [run.all_samples])
    with tf.control_dependencies(over):  # before backpropagation, which follows from the share
        return run.share(dtype)
