"""Keras's train and test functions where a worker holds several replicas: they take turns."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfrun.data.keras import division
from tfrun.engine import cut_short, multi_step_function
from tfrun.engine.turns import READS_ON, Turns
from tfrun.job.errors import TfrunError
from tfrun.job.world import may_stay, take_one_for_good

EAGER = "the model runs eagerly"


def function(model: Any, step: Any, turns: Turns) -> Any | None:
    """Returns a train or test function; None where each worker computes one replica for good.

    The iterator that it is called with gives the batches of this worker's replicas, one after the
    other.

    Args:
      model: whose.
      step: its `train_step` or `test_step`.
      turns: the replicas of this worker.

    Raises:
      TfrunError: TFRUN-518.
    """
    if model.steps_per_execution > 1 and take_one_for_good("it makes several steps in one call"):
        return None
    if runs_eagerly(model) and take_one_for_good(EAGER):
        return None
    if runs_eagerly(model):
        raise TfrunError(
            "TFRUN-518",
            "the model runs eagerly: replicas of one worker share a traced step",
            where="model.compile(run_eagerly=True), or tf.config.run_functions_eagerly",
            fix="Leave out run_eagerly, or --replicas",
        )
    one = multi_step_function.one_step(model, step, _put_gates)
    on_batch = tf.function(one, reduce_retracing=True, autograph=False)

    @tf.function(reduce_retracing=True, autograph=False)
    def on_next(iterator: Any) -> Any:
        return one(iterator.get_next())

    balance = turns.balance if step == model.train_step else None

    def run(iterator: Any) -> Any:
        if isinstance(iterator, division.AllPieces):
            return turns.run(on_batch, iterator.own(), iterator.spec)
        return turns.run(on_batch, [next(iterator) for _ in turns.held])

    def several(iterator: Any) -> Any:
        iterator = iterator if hasattr(iterator, "get_next") else iter(iterator)
        found = one_step(iterator)
        for _ in range(model.steps_per_execution - 1):
            try:
                found = one_step(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                break
        return found

    def one_step(iterator: Any) -> Any:
        try:
            if isinstance(iterator, READS_ON):
                found = turns.run(on_next, [iterator] * len(turns.held))
            else:
                found = run(iterator)
        except cut_short.SHUT:
            with cut_short.as_peer_error():
                raise
        if balance is not None:
            balance.step_done()
        return found

    return several


def runs_eagerly(model: Any) -> bool:
    """Whether the script has asked that a model's steps are not traced."""
    return model.run_eagerly or tf.config.functions_run_eagerly()


def _put_gates() -> None:
    """A worker that stays makes a step again that is cut off: the sooner, the less is lost."""
    if may_stay():
        cut_short.put_gates()
