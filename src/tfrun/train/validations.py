"""The validations of a `fit` in their data: how often it was begun, and how they are passed by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras.src.backend.tensorflow import trainer
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import can_convert_arrays

from tfrun.data import passes
from tfrun.data.dataset import Dataset


class Validations:
    """What one `fit` validates with, where that has a memory: a pipeline, a generator.

    Args:
      model: the model.
      arguments: those of `fit`.
      on_servers: parameter servers' workers read it, who have no passes in common.
    """

    def __init__(self, model: Any, arguments: Mapping[str, Any], *, on_servers: bool) -> None:
        self._model, self._arguments = model, arguments
        given = arguments.get("validation_data")
        self._data = data_adapter_utils.unpack_x_y_sample_weight(given) if given else (None,) * 3
        x = self._data[0]
        exact = x is None or isinstance(x, Dataset) or can_convert_arrays(self._data)
        self._has_memory = not (exact or on_servers)

    @property
    def begun(self) -> int:
        """How often the data has been begun by this `fit`."""
        iterator = getattr(self._model, "_eval_epoch_iterator", None)
        return iterator.passes.begun if iterator is not None and self._has_memory else 0

    def pass_by(self, epoch: int) -> None:
        """Goes past the validation of an epoch that is done, in the way in which it was run.

        Args:
          epoch: as Keras numbers it.
        """
        model = self._model
        if not self._has_memory or not model._should_eval(
            epoch, self._arguments.get("validation_freq", 1)
        ):
            return
        if getattr(model, "_eval_epoch_iterator", None) is None:
            model._eval_epoch_iterator = self._iterator()
        iterator = model._eval_epoch_iterator
        model._maybe_symbolic_build(iterator=iterator)  # `evaluate` looks at a batch each time
        iterator.reset()
        iterator.pass_by()

    def check(self, expected: int | None) -> None:
        """Refuses to validate with another pass over the data than the script's earlier run.

        Args:
          expected: how often it had been begun there; None where nobody knows.

        Raises:
          TfrunError: TFRUN-615.
        """
        iterator = getattr(self._model, "_eval_epoch_iterator", None)
        if iterator is not None and self._has_memory:
            passes.check(self._data[0], iterator.passes, expected, "the validation data")

    def _iterator(self) -> Any:
        """As keras's `fit` makes it (backend/tensorflow/trainer.py)."""
        x, y, weights = self._data
        given = self._arguments
        return trainer.TFEpochIterator(
            x=x,
            y=y,
            sample_weight=weights,
            batch_size=given.get("validation_batch_size") or given.get("batch_size"),
            distribute_strategy=self._model.distribute_strategy,
            steps_per_execution=self._model.steps_per_execution,
            steps_per_epoch=given.get("validation_steps"),
            shuffle=False,
        )
