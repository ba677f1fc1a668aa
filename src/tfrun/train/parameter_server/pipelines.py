"""A `tf.data` pipeline, or a function that makes one, run by each worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.coordinator import values as upstream

from tfrun.data import repeatable
from tfrun.train.parameter_server.errors import cannot_be_made, no_steps


class PipelineFeed:
    """Worker i of W reads the elements i, i + W, … of the pipeline.

    A worker that is started again goes on after the elements that it has trained.

    Args:
      data: a `tf.data.Dataset`, or a function that returns one and takes, if anything, a
        `tf.distribute.InputContext`: its pipeline i of W is this worker's.
      steps: of an epoch; None to read to the end of a finite pipeline.
      workers: W.
      batch_function: applied to each batch; None for none.

    """

    def __init__(
        self, data: Any, steps: int | None, workers: int, batch_function: Any = None
    ) -> None:
        self._workers, self._steps = workers, steps
        self._makers = [_maker(data, worker, workers, batch_function) for worker in range(workers)]
        one = self._makers[0].structured_outputs
        self.spec = one.element_spec
        cardinality = _cardinality(data)
        if steps is None and cardinality == tf.data.INFINITE_CARDINALITY:
            raise no_steps()
        self.steps = steps if steps is not None else (cardinality if cardinality >= 0 else None)
        self._element = one
        self.resource_specs: list[Any] = []
        self.done = [0] * workers
        self._opened: Any = None

    @property
    def ends(self) -> bool:
        """Whether an epoch ends with the pipeline: each one begins it anew."""
        return self._steps is None

    @property
    def argument_specs(self) -> list[tf.TensorSpec]:
        return []

    def arguments(self, epoch: int, step: int) -> list[np.ndarray]:
        return []

    def read(self, worker: int) -> int:
        """Notes that a worker has read an element; returns its number in the whole pipeline."""
        number = worker + self.done[worker] * self._workers
        self.done[worker] += 1
        return number

    def open(self, coordinator: Any) -> Any:
        if self._opened is None or self.ends:
            self.done = [0] * self._workers
            self._opened = self._iterators(coordinator)
        return self._opened

    def _iterators(self, coordinator: Any) -> Any:
        from tensorflow.python.distribute import input_lib

        def maker(number: int):
            made = self._makers[number]

            def make():
                return iter(made(tf.constant(self.done[number], tf.int64)))

            return make

        workers = coordinator._cluster.workers
        found = [one.create_resource(maker(n)) for n, one in enumerate(workers)]
        spec = input_lib.get_iterator_spec_from_dataset(coordinator.strategy, self._element)
        self.resource_specs = [spec]
        for one in found:
            one._type_spec = spec
        return upstream.PerWorkerValues(tuple(found))

    def batch(self, arguments: Sequence[tf.Tensor], resource: Sequence[Any]) -> Any:
        return next(resource[0])


def _maker(data: Any, worker: int, workers: int, function: Any) -> Any:
    """Returns a concrete function that takes how many elements to pass over."""
    make = _sharded(data, worker, workers)

    def dataset_fn(skip):
        made = make()
        if not isinstance(made, tf.data.Dataset):
            raise cannot_be_made(f"what the function returned, a {type(made).__name__}")
        _check_traced(made)
        made = made.map(function) if function else made
        return made.skip(skip).prefetch(2)

    spec = tf.TensorSpec([], tf.int64)
    traced = tf.function(dataset_fn, autograph=False).get_concrete_function(spec)
    if any(one.dtype == tf.variant for one in traced.captured_inputs):
        raise cannot_be_made("a pipeline that was made outside the function that returns it")
    return traced


def _sharded(data: Any, worker: int, workers: int) -> Callable[[], Any]:
    """Returns what makes a worker's part of the pipeline, in a graph."""
    if not isinstance(data, tf.data.Dataset):
        context = tf.distribute.InputContext(
            num_input_pipelines=workers, input_pipeline_id=worker, num_replicas_in_sync=1
        )
        return lambda: data(context) if _takes_context(data) else data()
    _check(data)
    graph = upstream.serialize_dataset_to_graph(data)
    spec = data.element_spec
    return lambda: upstream.deserialize_dataset_from_graph(graph, spec).shard(workers, worker)


def _takes_context(function: Any) -> bool:
    import inspect

    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return True


def _cardinality(data: Any) -> int:
    if isinstance(data, tf.data.Dataset):
        return int(data.cardinality())
    return int(tf.data.INFINITE_CARDINALITY)  # as TensorFlow has it: the steps are stated


def _check(data: tf.data.Dataset) -> None:
    if repeatable.has_python(data):
        raise cannot_be_made(
            "a tf.data pipeline with Python code in it (from_generator, py_function)"
        )


def _check_traced(data: tf.data.Dataset) -> None:
    """The same of a pipeline that a function makes, whose ops are in the graph being traced."""
    graph = tf.compat.v1.get_default_graph()
    names = {op.type for op in graph.get_operations()}
    for function in getattr(graph, "_functions", {}).values():
        definition = getattr(function, "cached_definition", None) or getattr(
            function, "definition", None
        )
        names |= {node.op for node in getattr(definition, "node_def", ())}
    if names & repeatable.PYTHON:
        raise cannot_be_made(
            "a tf.data pipeline with Python code in it (from_generator, py_function)"
        )
