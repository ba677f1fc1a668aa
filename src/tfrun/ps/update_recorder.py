"""Runs an optimizer's own `update_step` on values, to record what it changes as differences.

A difference is added in one atomic op, and so it can be that of a few rows: to the optimizer, rows
of a table are a small variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from keras.src import backend

from tfrun.job.errors import TfrunError
from tfrun.ps import variables


class Target:
    """What an optimizer sees of the variable that it updates: its dtype, its value, its key.

    Attributes:
      value: the tensor that the optimizer reads; assigning it changes this and nothing else.
    """

    def __init__(self, variable: Any, value: tf.Tensor) -> None:
        self.variable, self.value = variable, value
        self.name, self.path = variable.name, getattr(variable, "path", variable.name)
        self._unique_id = variables.raw(variable)._unique_id

    @property
    def dtype(self) -> str:
        return backend.standardize_dtype(self.value.dtype)

    @property
    def shape(self) -> tf.TensorShape:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return len(self.value.shape)

    def __tf_tensor__(self, dtype=None, name=None):
        return tf.convert_to_tensor(self.value, dtype=dtype, name=name)


class UpdateRecorder(backend.StatelessScope):
    """Records what `update_step` does to one variable, or shard, and to its slots.

    Args:
      optimizer: the optimizer.
      variable: its Keras variable.
      part: which shard, from 0.
      rows: int64 of shape [k], each one once, or None for the whole variable.
      known: values of the optimizer's scalars (iterations, learning rate) by the id of their
        Keras variable: those are on other servers.
    """

    def __init__(
        self, optimizer: Any, variable: Any, part: int, rows: Any, known: Mapping[int, tf.Tensor]
    ) -> None:
        super().__init__()
        self._optimizer, self._variable, self._part, self._rows = optimizer, variable, part, rows
        self._known = known
        self._slots: dict[int, Any] = {}
        self._deltas: dict[int, tf.Tensor] = {}
        self._mine = {id(v) for v in optimizer.variables}
        self.target = Target(variable, self._read(variable))
        self._before = self.target.value

    def get_current_value(self, variable: Any) -> Any:
        key = id(variable)
        if key in self._known:
            return self._known[key]
        if key not in self.state_mapping and key in self._mine:
            self.state_mapping[key] = self._read(variable)
            self._slots[key] = variable
        return self.state_mapping.get(key)

    def assign(self, variable: Any, value: Any) -> None:
        self._change(
            variable, lambda old: (tf.cast(value, old.dtype), tf.cast(value, old.dtype) - old)
        )

    def assign_add(self, variable: Any, value: Any) -> None:
        def change(old):
            delta = tf.cast(value, old.dtype)
            return old + delta, delta

        self._change(variable, change)

    def assign_sub(self, variable: Any, value: Any) -> None:
        self.assign_add(variable, -tf.convert_to_tensor(value))

    def changes(self) -> list[tuple[Any, tf.Tensor]]:
        """Returns (variable of TensorFlow, what to add to it, or to its rows), slots first."""
        slots = [
            (variables.parts(self._slots[key])[self._part], delta)
            for key, delta in self._deltas.items()
            if key in self._slots
        ]
        own = self._deltas.get(id(self.target))
        return [
            *slots,
            *([(variables.parts(self._variable)[self._part], own)] if own is not None else []),
        ]

    def _change(self, variable: Any, change: Any) -> None:
        key = id(variable)
        if variable is self.target:
            self.target.value, delta = change(self.target.value)
        else:
            new, delta = change(self.get_current_value(variable))
            self.state_mapping[key] = new
        self._deltas[key] = self._deltas[key] + delta if key in self._deltas else delta

    def _read(self, variable: Any) -> tf.Tensor:
        part = variables.parts(variable)[self._part if variables.is_sharded(variable) else 0]
        whole = variables.parts(self._variable)[self._part]
        if part.device != whole.device:
            raise TfrunError(
                "TFRUN-505",
                f"the optimizer {self._optimizer.name!r} keeps {variable.path!r} on another server "
                f"than {self._variable.path!r}: no server can update both",
                where="model.compile",
                fix="Use SGD, Adam, Adagrad, RMSprop or Ftrl, or a single parameter server",
            )
        if self._rows is None:
            return tf.convert_to_tensor(part.read_value())
        if part.shape != whole.shape:
            raise TfrunError(
                "TFRUN-505",
                f"the optimizer {self._optimizer.name!r} keeps {variable.path!r}, which is not "
                f"one value for each of {self._variable.path!r}: it cannot update single rows",
                where="model.compile",
                fix="Use SGD, Adam, Adagrad, RMSprop or Ftrl for models with embeddings",
            )
        return part.sparse_read(self._rows)


@contextlib.contextmanager
def recording(optimizer: Any, recorder: UpdateRecorder) -> Iterator[None]:
    """Has the optimizer's assignments go to `recorder`."""
    names = ("assign", "assign_add", "assign_sub")
    for name in names:
        object.__setattr__(optimizer, name, getattr(recorder, name))
    try:
        with recorder:
            yield
    finally:
        for name in names:
            object.__delattr__(optimizer, name)
