"""A Keras metric that the body of a loop updates counts what each replica of this worker has."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfrun.engine import loop_calls, replica
from tfrun.job.world import one_for_good


def updated(metric: Any, update: Any, args: Any, kwargs: Any) -> bool:
    """Has a metric that the loop's body updates count what each replica here has.

    Args:
      metric: Keras's, or the script's.
      update: its `update_state`, of the metric as well.
      args: with which that is called.
      kwargs: likewise.

    Returns:
      False where nothing is counted: it is no such call, or the same for all replicas.

    Raises:
      TfrunError: TFRUN-518 where nobody knows what the other replicas have.
    """
    if not tf.executing_eagerly() or one_for_good():
        return False
    given = tf.nest.flatten((args, kwargs), expand_composites=True)
    steps = [step for step in loop_calls.open_steps.values() if not step.is_one_each]
    for step in steps:
        if step.takes(given):
            strategy = metric.variables[0]._value.distribute_strategy
            parts = {id(leaf): of for leaf in given if (of := step.parts(leaf)) is not None}
            once = all(leaf.shape.rank == 0 for leaf in given if id(leaf) in parts)
            if once:  # as one process would, which has one number for the whole batch
                calls = strategy.extended._host_calls
                means = {key: loop_calls.reduced(calls, "MEAN", of) for key, of in parts.items()}
                args, kwargs = tf.nest.map_structure(
                    lambda leaf, means=means: means.get(id(leaf), leaf), (args, kwargs)
                )
            call = functools.partial(_update_on, strategy, update, metric, once)
            step.make(call, args, kwargs, metric)
            return True
    for leaf in given:
        for step in steps:
            step.check_alike(leaf)
    return False


def _update_on(
    strategy: Any, update: Any, metric: Any, once: bool, *args: Any, **kwargs: Any
) -> None:
    """Has each replica update a metric, or the job's first one alone."""

    def on_replica(*args: Any, **kwargs: Any) -> None:
        def updates() -> tf.Tensor:
            update(metric, *args, **kwargs)
            return tf.constant(0)

        run = replica.current()
        if not once or run is None:
            updates()
        else:
            tf.cond(tf.equal(run.number, 0), updates, lambda: tf.constant(0))

    strategy.run(on_replica, args, kwargs)
