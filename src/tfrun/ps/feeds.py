"""Data that workers read for themselves: the chief only says which batch.

A feed places what it needs once on each worker (`resource`), again on one that was started again,
and describes in a graph how a worker makes a batch of it. Workers of such a job run no Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.data.dataset import Dataset
from tfrun.data.order.permutation import sample_keys
from tfrun.data.sources.records import FileSource, RecordSource
from tfrun.data.sources.source import ArraySource, batch_spec
from tfrun.ps.errors import cannot_be_made
from tfrun.ps.pipelines import Layer, PipelineFeed
from tfrun.ps.server_step import MARK


class PositionFeed:
    """A `tfrun.Dataset`: batch s of an epoch is a function of (seed, epoch, s).

    Attributes:
      steps: of an epoch; None where only reading it tells.
      spec: the structure of a batch, of `tf.TensorSpec`.
      resource_specs: what `batch` gets of the resource.
      layers: what was trained of a pipeline, for a `Resume`; empty where the chief names batches.
      next_number: above the number of any mark that the feed has made itself.
    """

    def __init__(self, dataset: Dataset, batch_function: Any = None) -> None:
        self.dataset, self._plan = dataset, dataset.plan
        self._function = batch_function
        self.steps: int | None = dataset.steps_per_epoch
        self._source = source = self._plan.source
        # Records that the chief sends: workers on other machines could not read its copies.
        self._sent = source if isinstance(source, RecordSource) and source.is_copied else None
        self._read = self._reader()
        self.resource_specs = [
            tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)) for array in self._held
        ]
        self._opened: tuple[Any, Any] | None = None
        self.spec = self._spec()
        self.layers: list[Layer] = []
        self.next_number = 0

    @property
    def _held(self) -> list[np.ndarray]:
        return self._source.arrays if isinstance(self._source, ArraySource) else []

    def open(self, coordinator: Any, number: int) -> Any:
        """Returns what each worker holds, a `PerWorkerValues`, for the next epoch.

        Args:
          coordinator: the strategy's.
          number: no step on the servers has had it, or a higher one.
        """
        if self._opened is None or self._opened[0] is not coordinator:
            arrays = [tf.convert_to_tensor(array) for array in self._held]

            def place():
                return [tf.identity(array) for array in arrays]

            made = tf.function(place).get_concrete_function() if arrays else (lambda: [])
            self._opened = coordinator, coordinator._create_per_worker_resources(made)
        return self._opened[1]

    def next_epoch(self) -> None:
        """The epoch is over, though nothing of it was read; a batch is named with its epoch."""

    def turns(self, left: int | None) -> None:
        """Returns who reads next; None where the chief names the batches.

        Args:
          left: steps of the epoch; None for all that are left.
        """

    def arguments(self, mark: int, epoch: int, step: int) -> list[np.ndarray]:
        """Returns what a worker is told about a batch: a few small arrays.

        Args:
          mark: of the step (see ps/server_step.py).
          epoch: from 0.
          step: of the epoch, from 0.
        """
        begin, end = self._plan.share(step, 0, 1)
        rows = self._plan.order.indices(epoch, begin, end)
        stages = self._plan.stages if self._plan.is_random else ()
        keys = [sample_keys(rows, self._plan.order.seed, epoch, n) for n in range(len(stages))]
        given: list[np.ndarray]
        if self._sent is not None:
            given = [np.array(mark), *self._sent.read(rows)]
        elif isinstance(self._source, RecordSource | FileSource):
            given = [np.array(mark), *self._source.located(rows)]
        else:  # each argument is a message to the worker
            given = [np.insert(rows, 0, mark)]
        return [*given, *([np.stack(keys, axis=1)] if keys else [])]

    @property
    def argument_specs(self) -> list[tf.TensorSpec]:
        strings = tf.TensorSpec([None], tf.string)
        kinds = (
            [MARK, strings, tf.TensorSpec([None, 3], tf.int64)]
            if isinstance(self._source, RecordSource) and self._sent is None
            else [MARK, strings]
            if isinstance(self._source, RecordSource | FileSource)
            else [tf.TensorSpec([None], tf.int64)]
        )
        random = [tf.TensorSpec([None, len(self._plan.stages), 2], tf.int64)]
        return kinds + (random if self._plan.is_random else [])

    def batch(
        self, arguments: Sequence[tf.Tensor], resource: Sequence[Any]
    ) -> tuple[tf.Tensor, Any]:
        """Makes the step's mark and its batch on the worker, in a graph."""
        mark, *arguments = arguments
        if isinstance(self._source, ArraySource):
            mark, arguments = mark[0], [mark[1:], *arguments]
        rows = self._read(arguments, resource)
        if self._plan.stages:
            keys = arguments[-1] if self._plan.is_random else None
            rows = self._staged(rows, keys, tf.shape(arguments[0], tf.int64)[0])
        made = self._function(*rows) if self._function and isinstance(rows, tuple) else rows
        return mark, made

    def _reader(self) -> Callable[[Sequence[tf.Tensor], Sequence[Any]], Any]:
        """What reads rows on a worker, from the arguments and the resource."""
        if isinstance(self._source, ArraySource):
            return functools.partial(_read_arrays, self._source)
        if isinstance(self._source, FileSource):
            return _read_files
        if self._sent is not None:
            return lambda arguments, _: arguments[0]
        if isinstance(self._source, RecordSource):
            return _read_records
        kind = type(self._source).__name__
        raise cannot_be_made(f"a tfrun.Dataset of {kind}, which Python code of the chief reads")

    def _staged(self, rows: Any, keys: Any, count: tf.Tensor) -> Any:
        from tfrun.data.pipeline import stage_function

        element = (rows,) if keys is None else (rows, keys)
        made = tf.data.Dataset.from_tensor_slices(element)
        for number, stage in enumerate(self._plan.stages):
            made = made.map(stage_function(stage, number))
        made = made.map(lambda sample, *_: sample).batch(count)
        return made.get_single_element()

    def _spec(self) -> Any:
        specs = [*self.argument_specs, *self.resource_specs]

        def one(*given):
            count = len(self.argument_specs)
            return self.batch(given[:count], given[count:])[1]

        traced: Any = tf.function(one, input_signature=specs, autograph=False)
        made = traced.get_concrete_function().structured_outputs
        return tf.nest.map_structure(lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), made)


BatchFeed = PositionFeed | PipelineFeed


def _read_arrays(source: ArraySource, arguments: Sequence[tf.Tensor], resource: Sequence[Any]):
    rows = [tf.gather(array, arguments[0]) for array in resource]
    for row, spec in zip(rows, tf.nest.flatten(batch_spec(source.spec, None)), strict=True):
        row.set_shape(spec.shape)
    return tf.nest.pack_sequence_as(source.nest, rows)


def _read_files(arguments: Sequence[tf.Tensor], _: Any) -> Any:
    """Returns (paths, contents), strings of shape [k]."""
    paths = arguments[0]
    return paths, tf.map_fn(tf.io.read_file, paths, fn_output_signature=tf.string)


def _read_records(arguments: Sequence[tf.Tensor], _: Any) -> tf.Tensor:
    """Returns records of TFRecord files, strings of shape [k].

    Args:
      arguments: paths, strings of shape [k]; and int64 of shape [k, 3]: the first byte of each
        record's data, its length, and how many bytes of the file follow it.
    """
    paths, places = arguments[0], arguments[1]

    def one(path, place):
        # The only reader of TensorFlow's that can begin in the middle of a file.
        return tf.data.FixedLengthRecordDataset(
            path,
            record_bytes=place[1],
            header_bytes=place[0],
            footer_bytes=place[2],
            buffer_size=tf.minimum(place[1] + 1, 1 << 20),
        )

    slices: Any = tf.data.Dataset.from_tensor_slices((paths, places))
    rows = slices.flat_map(one).batch(tf.shape(paths, tf.int64)[0]).get_single_element()
    rows.set_shape([None])
    return rows
