"""Handles training steps that a script makes outside `strategy.run`.

Only in a run does TensorFlow know whose gradients are summed with whose. Elsewhere it fails in
words about `.handle` and `merge_call`; or, with an optimizer that has its variables already, each
worker trains for itself and nothing is said. One replica has nobody to sum with: there the step
is done as a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import save_context

from tfrun.engine import adoption
from tfrun.engine.local_mode import in_local_mode
from tfrun.engine.script_lines import script_line
from tfrun.job.errors import TfrunError

# Called when a script that shares nothing yet takes the first gradients by variables itself.
at_first_gradient: list[Callable[[], None]] = []


class OutsideRunError(TfrunError, ValueError):
    """TFRUN-512; a ValueError where TensorFlow raises one."""


def outside_run(what: str) -> OutsideRunError:
    """The error for a part of a step that does not stand where it can be done."""
    return OutsideRunError(
        "TFRUN-512",
        f"{what} outside strategy.run",
        where=script_line(),
        expected="a training step as one function, which strategy.run calls on each replica",
        fix="Put forward pass, gradients and optimizer into `def step(batch):`, and call "
        "`strategy.run(step, args=(batch,))` in a tf.function, with batches of "
        "`strategy.experimental_distribute_dataset(dataset)`; or use model.fit",
    )


def inside_another() -> OutsideRunError:
    """The error for a `strategy.run` in a function that `strategy.run` calls."""
    return OutsideRunError(
        "TFRUN-512",
        "strategy.run is called in a function that strategy.run calls",
        where=script_line(),
        expected="strategy.run around the whole step",
        fix="Call the inner function itself: it runs on each replica already",
    )


def is_inside() -> bool:
    """Whether this code runs on a replica of a strategy that a script has made."""
    return tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()


def strategy_to_run_in(optimizer: Any, variables: Any) -> Any | None:
    """The strategy of one replica in whose run an update has to be done; None where it stands.

    Args:
      optimizer: a Keras optimizer.
      variables: what it is to update; may be None.

    Raises:
      TfrunError: TFRUN-512, for an update of several replicas.
    """
    if is_inside() or save_context.in_save_context():
        return None
    owner = adoption.strategy_of_optimizer(optimizer)
    for variable in variables or ():
        owner = owner or adoption.strategy_of(variable)
    if not in_local_mode():
        owner = owner or adoption.given()  # else each worker would train for itself
    one_device = tf.distribute.OneDeviceStrategy
    if owner is None or not (hasattr(owner, "step_logs") or isinstance(owner, one_device)):
        return None
    if owner.num_replicas_in_sync == 1:
        return owner
    here = tf.distribute.get_strategy() is owner
    if here and not owner.extended._use_merge_call():
        return None  # of gradients that the script has summed itself
    raise outside_run(f"the optimizer {optimizer.name!r} updates weights")


def look_at_gradients(sources: Any) -> None:
    """Notes that gradients are taken; no optimizer need follow that anybody knows.

    Args:
      sources: what they are taken by; a step of training takes them by variables.
    """
    if not at_first_gradient or is_inside() or adoption.given() is not None:
        return
    if any(getattr(one, "trainable", False) for one in tf.nest.flatten(sources)):
        while at_first_gradient:
            at_first_gradient.pop()()
