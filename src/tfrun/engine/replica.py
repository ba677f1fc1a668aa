"""What one `strategy.run` knows about itself, on each replica.

TensorFlow makes one `ReplicaContext` a replica and run, and keeps it through nested graphs
(`tf.cond`, `tf.function`) and threads, so what the repairs must remember hangs on that object.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import tf_method_target
from tensorflow.python.util import tf_decorator

from tfrun.job.world import may_stay, one_for_good, world


@dataclass(kw_only=True)
class ReplicaRun:
    """One replica's part of one `strategy.run`.

    Attributes:
      context: the replica context of the run.
      graph: the graph that the run builds, or the global one when it is eager.
      own_seeds: what makes this replica's random numbers others than those of the rest.
      assigned: Keras variables that layers assigned in this run and that are not averaged yet.
      updating: True while an optimizer applies gradients that are already reduced. Every replica
        then computes the same values from the same inputs, so no communication is needed.
      batch: a part of this replica's batch, whose size is not known; None where nobody has one.
      samples: number of samples of this replica's batch, a scalar float32 tensor; None when all
        replicas have equally many or it is not known.
      all_samples: the sum of `samples` over the replicas.
      deferred: updates that wait for the end of the step; None when they do not wait.
      counts: the ops that have counted this step's updates (see commit.py).
      committed: the `commit.Commit` of its newest update, if that has metrics.
      travels: what that update hands in of them, see counted_after.py.
      counts_late: the step has added to them since then.
      reduced: this is a training step: it has reduced gradients.
      losses: what is known of the losses of Keras's training or test step (see losses.py); None
        with one replica, and in a loop of the script's own.
    """

    context: Any
    graph: Any
    own_seeds: list[Any] = field(default_factory=list)
    assigned: list[Any] = field(default_factory=list)
    updating: bool = False
    batch: Any = None
    samples: Any = None
    all_samples: Any = None
    deferred: list[Callable[[], None]] | None = None
    counts: list[Any] = field(default_factory=list)
    committed: Any = None
    travels: Any = None
    counts_late: bool = False
    reduced: bool = False
    losses: Any = None

    @property
    def number(self) -> Any:
        """This replica's among all: an int, or a scalar tensor where a worker has several."""
        turns = turns_of(self.context.strategy)
        return self._traced_number if turns is None else turns.number()

    @property
    def _traced_number(self) -> int:
        return int(tf.get_static_value(self.context.replica_id_in_sync_group))

    @property
    def local_number(self) -> int:
        """This replica's among those of this worker that are traced."""
        return self._traced_number % len(self.context.strategy.extended.worker_devices)

    @property
    def tells(self) -> bool:
        """True where what concerns all replicas is told."""
        return self._traced_number == 0

    @property
    def is_first_here(self) -> bool:
        """True on the first of this worker's replicas."""
        return self.local_number == 0

    def in_nested_function(self) -> bool:
        """Whether this code is traced into a `tf.function` that the run calls."""
        return _function_graph() is not self.graph

    @contextlib.contextmanager
    def updates(self) -> Iterator[None]:
        self.updating = True
        try:
            yield
        finally:
            self.updating = False

    def weighted(self, value):
        """`value` times this replica's share of the global batch; the sum over them is the mean.

        A replica without samples (a last batch smaller than the replicas) has a NaN mean and a
        share of zero: it counts as zero.
        """
        if self.samples is None:
            return value / tf.cast(self.context.num_replicas_in_sync, value.dtype)
        return tf.where(self.samples > 0, value, tf.zeros_like(value)) * self.share(value.dtype)

    def share(self, dtype):
        """This replica's share of the global batch's samples, to the last bit of `dtype`."""
        exact = tf.float64 if dtype == tf.float64 else tf.float32
        return tf.cast(tf.cast(self.samples, exact) / tf.cast(self.all_samples, exact), dtype)


def turns_of(strategy: Any) -> Any | None:
    """The `Turns` of the replicas that a worker holds; None where each worker is one."""
    if one_for_good():
        return None
    return getattr(getattr(strategy.extended, "_host_calls", None), "turns", None)


def may_take_turns(strategy: Any) -> bool:
    """Whether a worker has several replicas in a loop, or may come to."""
    return turns_of(strategy) is not None and (take_turns() or may_stay())


def take_turns() -> bool:
    """Whether loops of this job are made for each replica of a worker, as far as it is its own."""
    here = world()
    return here.replicas != here.size


_ATTRIBUTE = "_tfrun_run"


def current() -> ReplicaRun | None:
    """The run of one of tfrun's strategies that this code is a part of, on this replica."""
    return getattr(tf.distribute.get_replica_context(), _ATTRIBUTE, None)


@contextlib.contextmanager
def replica_run() -> Iterator[ReplicaRun]:
    """Marks the current replica context as a run of one of tfrun's strategies."""
    context = tf.distribute.get_replica_context()
    outer = getattr(context, _ATTRIBUTE, None)
    run = ReplicaRun(context=context, graph=_function_graph())
    setattr(context, _ATTRIBUTE, run)
    try:
        yield run
    finally:
        setattr(context, _ATTRIBUTE, outer)


def _function_graph():
    """The graph of the innermost function, past the branches and bodies of its control flow."""
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "is_control_flow_graph", False):
        graph = graph.outer_graph
    return graph


def bound(function: Callable) -> Callable:
    """`function`; of a `@tf.function` in a class the method itself, on the object that it is of.

    TensorFlow binds it to a stand-in, which autograph alone knows how to call.
    """
    method = tf_decorator.unwrap(function)[1]
    owner = getattr(method, "__self__", None)
    if not isinstance(owner, tf_method_target.TfMethodTarget):
        return function
    own: Any = owner.weakrefself_func__()
    return types.MethodType(own, owner.target)
