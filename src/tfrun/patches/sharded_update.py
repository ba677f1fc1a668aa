"""An optimizer that workers share updates the weights that are this worker's.

See engine/optimizer_shards.py. Outside of an update, and without `--shard-optimizer`, nothing of
this does anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from tfrun.engine import optimizer_shards, sharded_sums
from tfrun.engine.state_slots import Slot


def note_weights(original):
    """What is clipped and accumulated comes without its weights."""

    def _backend_apply_gradients(self, grads, trainable_variables):
        shards = optimizer_shards.updating(self)
        if shards is not None:
            shards.updated = list(trainable_variables)
        return original(self, grads, trainable_variables)

    return _backend_apply_gradients


def clip_by_the_norm_of_all(original):
    """The norm of all gradients is that of all workers'."""

    def _clip_gradients(self, grads):
        shards, most = optimizer_shards.updating(self), self.global_clipnorm
        if shards is None or self.clipnorm or not most or most <= 0:
            return original(self, grads)
        # keras/src/optimizers/base_optimizer.py, `clip_by_global_norm`.
        from keras.src import ops

        norm = sharded_sums.global_norm(shards, grads)
        scale = most * ops.minimum(1.0 / norm, 1.0 / most)
        scale = scale + (norm - norm)
        return [grad * scale for grad in grads]

    return _clip_gradients


def update_own(original):
    """Each worker updates its own weights."""

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        shards = optimizer_shards.updating(self)
        if shards is not None:
            pairs = zip(grads, trainable_variables, strict=True)
            mine = [(grad, weight) for grad, weight in pairs if shards.is_mine(weight)]
            grads, trainable_variables = [g for g, _ in mine], [w for _, w in mine]
        return original(self, grads, trainable_variables, learning_rate)

    return _backend_update_step


def decay_own(original):
    """Each worker decays its own weights."""

    def _apply_weight_decay(self, variables):
        shards = optimizer_shards.updating(self)
        if shards is not None:
            variables = [weight for weight in variables if shards.is_mine(weight)]
        return original(self, variables)

    return _apply_weight_decay


def average_own(original):
    """Each worker keeps the averages of its own weights, and writes them there."""

    def average(self, trainable_variables):
        shards = optimizer_shards.updating(self)
        if shards is None:
            if (shards := optimizer_shards.of(self)) is not None:
                every = self._model_variables_moving_average
                shards.fill([one for one in every if isinstance(one, Slot)])
            return original(self, trainable_variables)
        mine = [weight for weight in trainable_variables if shards.is_mine(weight)]
        averages = [
            one
            for one, weight in zip(
                self._model_variables_moving_average, trainable_variables, strict=True
            )
            if shards.is_mine(weight)
        ]
        with _instead(self, "_model_variables_moving_average", averages):
            return original(self, mine)

    return average


def begin_own_sums_anew(original):
    """Each worker has the accumulated gradients of its own weights."""

    def _backend_reset_gradient_accumulators(self):
        shards = optimizer_shards.updating(self)
        if shards is None:
            return original(self)
        mine = [one for one in self._accumulated_gradients if shards.holds(one)]
        with _instead(self, "_accumulated_gradients", mine):
            return original(self)

    return _backend_reset_gradient_accumulators


def accumulate_own(original):
    """Each worker accumulates the gradients of its own weights."""

    def _backend_increment_gradient_accumulators(self, grads, acc_grads):
        shards = optimizer_shards.updating(self)
        if shards is not None:
            pairs = zip(grads, acc_grads, strict=True)
            mine = [(grad, total) for grad, total in pairs if shards.holds(total)]
            grads, acc_grads = [g for g, _ in mine], [t for _, t in mine]
        return original(self, grads, acc_grads)

    return _backend_increment_gradient_accumulators


@contextlib.contextmanager
def _instead(optimizer: Any, name: str, value: Sequence[Any]) -> Iterator[None]:
    """While it lasts an attribute of an optimizer is another one, unseen by Keras's tracking."""
    before = getattr(optimizer, name)
    object.__setattr__(optimizer, name, value)
    try:
        yield
    finally:
        object.__setattr__(optimizer, name, before)
