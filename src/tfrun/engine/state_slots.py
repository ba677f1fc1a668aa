"""An optimizer's variables that one worker holds for all: a slot looks like any other variable.

Its owner has it as always. On the others it has no memory, until somebody reads it outside of a
step: then it is fetched from its owner, and let go of when the next step changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from keras.src import backend
from numpy.typing import NDArray

from tfrun.engine import replica
from tfrun.job.errors import TfrunError


class Holder(Protocol):
    """Who knows where slots are: `optimizer_shards.Shards`."""

    def is_here(self, slot: Slot) -> bool: ...

    def fill(self, slots: Sequence[Slot]) -> None: ...

    def fetch(self, slots: Sequence[Slot]) -> list[NDArray]: ...

    def store(self, slot: Slot, value: NDArray) -> None: ...


class Slot(backend.Variable):
    """A variable of an optimizer, of which one worker holds the value. Others are made into it.

    Attributes:
      holder: knows where it is.
      owner: the rank of who holds it.
    """

    holder: Holder
    owner: int

    @property
    def value(self) -> Any:
        """The TensorFlow variable, whose value is here.

        Raises:
          TfrunError: TFRUN-519 where a function is traced that reads it beside an update.
        """
        run = replica.current()
        if run is None or not run.updating:
            if not tf.executing_eagerly():
                raise _read_in_a_graph(self)
            self.holder.fill([self])
        return super().value

    def assign(self, value: Any) -> Any:
        if not self.holder.is_here(self):  # all workers assign it, and its owner is one of them
            self.holder.store(self, np.zeros(tuple(self.shape), self._value.dtype.as_numpy_dtype))
        return super().assign(value)


def make(variable: Any, holder: Holder, owner: int) -> Slot:
    """Makes a Keras variable a slot."""
    variable.__class__ = Slot
    variable.holder, variable.owner = holder, owner
    return variable


def fetched(variables: Iterable[Any]) -> dict[int, NDArray]:
    """The values of those variables that are slots, by id, whoever holds them; no collective.

    Raises:
      tf.errors.UnavailableError: a peer that holds some has gone.
      Moved: a step changes them.
    """
    slots = [variable for variable in variables if isinstance(variable, Slot)]
    found: dict[int, NDArray] = {}
    for holder in {id(slot.holder): slot.holder for slot in slots}.values():
        its = [slot for slot in slots if slot.holder is holder]
        found |= zip(map(id, its), holder.fetch(its), strict=True)
    return found


def check_here(slot: Slot) -> None:
    """Refuses to take what stands in the memory of a slot that is elsewhere.

    Raises:
      TfrunError: TFRUN-519.
    """
    if not slot.holder.is_here(slot):
        raise elsewhere(slot)


def elsewhere(slot: Slot) -> TfrunError:
    """The error of who cannot do with a slot."""
    return TfrunError(
        "TFRUN-519",
        f"{slot.path!r} is a variable that worker {slot.owner} holds for all",
        where="a training beside `fit`",
        expected="with --shard-optimizer, optimizers that `fit` alone trains",
        fix="Give the loop an optimizer of its own, or leave out --shard-optimizer",
    )


class Moved(Exception):
    """A step has begun to change what was asked for."""


def _read_in_a_graph(slot: Slot) -> TfrunError:
    return TfrunError(
        "TFRUN-519",
        f"a function reads the optimizer's variable {slot.path!r}, which worker {slot.owner} holds",
        where="a tf.function, or the model's train_step",
        expected="with --shard-optimizer, optimizers' variables that are read outside of functions",
        fix="Read it between two steps, as `optimizer.variables[i].numpy()`; or leave out "
        "--shard-optimizer",
    )
