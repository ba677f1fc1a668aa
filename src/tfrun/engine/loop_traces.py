"""A call of a loop's step, traced once for each shape that its tensors have.

So the step of a replica does not depend on which others a worker holds, and a script that asks for
the size of its batch is told it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.engine.hand_in_places import Places

_is_tracing = False  # some call
# Is told each trace, where workers that come later are to know of it.
when_traced: Callable[[Traces, Sequence[tf.TensorSpec], Any], None] | None = None
has_failed = False  # the newest trace: what it was to make is there in part
# Of each function, whichever loop calls it: what it calls is not traced anew for each.
_places: weakref.WeakKeyDictionary[Any, Places] = weakref.WeakKeyDictionary()


class Traces:
    """A call of a function with arguments of one structure, as `Turns.run` runs it.

    Args:
      function: what is called.
      known_as: what tells it from others.
      structure: of its arguments.
      fixed: its other arguments than tensors, by position among all leaves.
      host_calls: this worker's `CallsInTurn`.

    Attributes:
      function, known_as, structure, fixed: see above.
    """

    def __init__(
        self,
        function: Any,
        known_as: Any,
        structure: Any,
        fixed: dict[int, Any],
        host_calls: Any,
    ) -> None:
        def once(tensors: list[tf.Tensor]) -> Any:
            given = iter(tensors)
            leaves = [
                fixed[place] if place in fixed else next(given)
                for place in range(len(fixed) + len(tensors))
            ]
            args, kwargs = tf.nest.pack_sequence_as(structure, leaves, expand_composites=True)
            return function(*args, **kwargs)

        self.function, self.known_as = function, known_as
        self.structure, self.fixed = structure, fixed
        self._once, self._host_calls = tf.function(once, autograph=False), host_calls
        self._places = _places.setdefault(known_as, Places())
        self._traced: dict[tuple[tf.TensorSpec, ...], Any] = {}

    def get_concrete_function(self, tensors: Sequence[tf.Tensor]) -> Any:
        """What is run with such tensors, as of a `tf.function`: one for each shape that they have.

        So the step of a replica does not depend on what others a worker holds.
        """
        return self.traced_for(_specs(tensors))

    def has_traced(self, tensors: Sequence[tf.Tensor]) -> bool:
        """Whether it has been traced for such tensors."""
        return _specs(tensors) in self._traced

    def traced_for(self, specs: tuple[tf.TensorSpec, ...]) -> Any:
        """As `get_concrete_function`, of tensors like these."""
        global _is_tracing, has_failed
        if specs not in self._traced:
            _is_tracing = has_failed = True
            try:
                with self._host_calls.tracing(self._places):
                    self._traced[specs] = self._once.get_concrete_function(list(specs))
                has_failed = False
            finally:
                _is_tracing = False
            if when_traced is not None:
                when_traced(self, specs, self._traced[specs])
        return self._traced[specs]


def _specs(tensors: Sequence[tf.Tensor]) -> tuple[tf.TensorSpec, ...]:
    return tuple(map(tf.TensorSpec.from_tensor, tensors))


def is_tracing() -> bool:
    """Whether a call of such a loop is being traced."""
    return _is_tracing


def structure_of(given: Any) -> Any:
    """What says how arguments are put together again of their leaves, of whatever size."""
    return tf.nest.map_structure(_place_of, tf.nest.map_structure(_spec_of, given))


def is_plain(leaf: Any) -> bool:
    """Whether a leaf is known by its value, and not as the object that it is."""
    return isinstance(leaf, bool | int | float | str | bytes | np.generic | type(None))


def _spec_of(leaf: Any) -> Any:
    """What says how a leaf is put together again, of whatever size."""
    if isinstance(leaf, tf.RaggedTensor):
        shape, splits = [None] * (leaf.shape.rank or 0), leaf.row_splits.dtype
        return tf.RaggedTensorSpec(shape, leaf.dtype, leaf.ragged_rank, splits)
    if isinstance(leaf, tf.SparseTensor):
        return tf.SparseTensorSpec([None] * (leaf.shape.rank or 0), leaf.dtype)
    if isinstance(leaf, tf.__internal__.CompositeTensor) and not isinstance(leaf, tf.Variable):
        return tf.type_spec_from_value(leaf)
    return leaf


def _place_of(leaf: Any) -> Any:
    return leaf if isinstance(leaf, tf.TypeSpec) else None
