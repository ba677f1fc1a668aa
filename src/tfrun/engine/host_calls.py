"""The host collective as operations of a TensorFlow graph.

They run one after the other on every worker: each reads and writes a variable of ours, and
TensorFlow keeps the order of what uses the same variable, through functions, loops and conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from tfrun.collective import group
from tfrun.collective.errors import PeerGone


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Those of some tensors that are gradients; see the class of this name in group.py.

    Attributes:
      which: their positions.
      name: of them all.
      version: integer scalar: how many times they have been summed.
    """

    which: Collection[int]
    name: str
    version: Any

    def at(self, version: int) -> group.Gradients:
        return group.Gradients(which=self.which, name=self.name, version=version)


class Calls:
    """Collectives as operations of a graph, or at once when TensorFlow executes eagerly."""

    def __init__(self, members: group.Collective) -> None:
        self.group = members
        with tf.init_scope(), tf.device("CPU:0"):
            # Past the strategy, as TensorFlow's own ordering tokens.
            self._order = resource_variable_ops.ResourceVariable(0)

    def all_reduce(
        self, tensors: Sequence[Any], gradients: Gradients | None = None
    ) -> list[tf.Tensor]:
        """Sums each tensor over the workers.

        Args:
          tensors: of any shapes and dtypes; numpy's too when TensorFlow executes eagerly.
          gradients: which of them may travel compressed.
        """

        def reduce(arrays: list[np.ndarray]) -> list[np.ndarray]:
            if gradients is None:
                return self.group.all_reduce(arrays)
            return self.group.all_reduce(arrays[1:], gradients.at(int(arrays[0])))

        version = [] if gradients is None else [tf.convert_to_tensor(gradients.version)]
        sums = self._call(reduce, [*version, *tensors], [t.dtype for t in tensors])
        for total, tensor in zip(sums, tensors, strict=True):
            total.set_shape(tensor.shape)
        return sums

    def all_gather(self, tensors: Sequence[tf.Tensor], axes: Sequence[int]) -> list[tf.Tensor]:
        """Each tensor's parts of all workers, one after the other along its axis."""

        def gather(arrays: list[np.ndarray]) -> list[np.ndarray]:
            found = self.group.all_gather(arrays)
            return [np.concatenate(p, axis=a) for p, a in zip(found, axes, strict=True)]

        joined = self._call(gather, tensors, [t.dtype for t in tensors])
        for whole, tensor, axis in zip(joined, tensors, axes, strict=True):
            if tensor.shape.rank is not None:
                shape = tensor.shape.as_list()
                shape[axis] = None
                whole.set_shape(shape)
        return joined

    def broadcast(self, tensor: tf.Tensor) -> tf.Tensor:
        def send(arrays: list[np.ndarray]) -> list[np.ndarray]:
            return [self.group.broadcast(arrays[0])]

        (value,) = self._call(send, [tensor], [tensor.dtype])
        value.set_shape(tensor.shape)
        return value

    def _call(
        self,
        function: Callable[[list[np.ndarray]], list[np.ndarray]],
        tensors: Sequence[tf.Tensor],
        dtypes: Sequence[tf.DType],
    ) -> list[tf.Tensor]:
        if tf.executing_eagerly():
            try:
                results = function([np.asarray(tensor) for tensor in tensors])
            except PeerGone as error:
                raise tf.errors.UnavailableError(None, None, str(error)) from None
            return [tf.constant(r, t) for r, t in zip(results, dtypes, strict=True)]

        def on_arrays(_, *arrays: np.ndarray) -> list[np.ndarray]:
            try:
                return [_said(""), *function(list(arrays))]
            except PeerGone as error:
                # Raised from here, TensorFlow would log a traceback of Python's.
                count = len(arrays) - len(dtypes)  # of those that are not summed
                return [_said(f"PeerGone: {error}"), *map(np.zeros_like, arrays[count:])]

        with tf.device("CPU:0"):
            before = tf.raw_ops.ReadVariableOp(resource=self._order.handle, dtype=tf.int32)
            failure, *results = tf.numpy_function(
                on_arrays, [before, *tensors], [tf.string, *dtypes]
            )
            failure.set_shape([])
            fine = tf.raw_ops.Assert(condition=tf.equal(failure, ""), data=[failure], summarize=1)
            with tf.control_dependencies([fine]):
                results = [tf.identity(result) for result in results]
                tf.raw_ops.AssignVariableOp(resource=self._order.handle, value=tf.constant(0))
        return results


def _said(text: str) -> np.ndarray:
    return np.array(text.encode(), object)
