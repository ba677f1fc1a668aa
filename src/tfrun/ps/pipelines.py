"""Runs a `tf.data` pipeline, or a function that makes one, on each worker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.coordinator import values as upstream

from tfrun.data.keras.fit_plan import Resume
from tfrun.data.order import repeatable
from tfrun.ps.errors import cannot_be_made, no_steps
from tfrun.ps.pipeline_seeds import Seeded
from tfrun.ps.reading_turns import Turns
from tfrun.ps.server_step import RING, mark_of


class Layer(TypedDict):
    """What some workers have trained of a pipeline, or of what was left of one.

    Attributes:
      workers: how many they were.
      done: how many elements of its part each of them has trained.
    """

    workers: int
    done: list[int]


class PipelineFeed:
    """Worker i of W reads the elements i, i + W, … of the pipeline.

    Element k of a worker's part is step `base + k` in the worker's place of the ring. After any
    failure the worker's iterator is made anew, behind the elements that are known to be trained.

    Args:
      data: a `tf.data.Dataset`, or a function that returns one and takes, if anything, a
        `tf.distribute.InputContext`: its pipeline i of W is this worker's.
      steps: of an epoch; None to read to the end of a finite pipeline.
      workers: W.
      batch_function: applied to each batch; None for none.
      resume: what was trained before.

    Attributes:
      done: how many elements of its part each worker has trained.
    """

    def __init__(
        self,
        data: Any,
        steps: int | None,
        workers: int,
        batch_function: Any = None,
        resume: Resume | None = None,
    ) -> None:
        self._data, self._workers, self._steps = data, workers, steps
        self._function, is_dataset = batch_function, isinstance(data, tf.data.Dataset)
        resume = resume or Resume()
        layers = resume.pipeline if resume.steps or not self.ends else ()
        self._before, self.done = _split(layers, workers, whole=is_dataset)
        self._seeded: Seeded | None = None
        if is_dataset:
            _refuse_python(repeatable.has_python(data))
            self._seeded = Seeded(upstream.serialize_dataset_to_graph(data), data.element_spec)
        self._epoch = resume.epochs if self.ends else 0
        self._makers = self._make()
        one = self._makers[0].structured_outputs
        _, self.spec = one.element_spec
        self.steps = steps
        if steps is None:  # of a pipeline; whoever gives a function states them
            cardinality = int(data.cardinality())
            if cardinality == tf.data.INFINITE_CARDINALITY:
                raise no_steps()
            self.steps = cardinality if cardinality >= 0 else None
        self._element = one
        self.resource_specs: list[Any] = []
        self._of_epoch: list[tf.Tensor] = []
        self._iterators: list[Any] = [None] * workers
        self._base = 0
        self._is_open = False

    @property
    def ends(self) -> bool:
        """Whether an epoch ends with the pipeline: each one begins it anew."""
        return self._steps is None

    @property
    def layers(self) -> list[Layer]:
        """What was trained of the pipeline that is being read, for a `Resume`."""
        return [*self._before, {"workers": self._workers, "done": list(self.done)}]

    @property
    def argument_specs(self) -> list[tf.TensorSpec]:
        return []

    def arguments(self, mark: int, epoch: int, step: int) -> list[np.ndarray]:
        return []

    def turns(self, left: int | None) -> Turns:
        return Turns(self._workers, None if self.ends else left)

    def open(self, coordinator: Any, number: int) -> Any:
        from tensorflow.python.distribute import input_lib

        if not self._is_open or self.ends:
            if self._is_open:
                self.next_epoch()
            self._base, self._is_open = number, True
            if self._seeded is not None:
                self._of_epoch = [self._seeded.of_epoch(self._epoch)]
        spec = input_lib.get_iterator_spec_from_dataset(coordinator.strategy, self._element)
        self.resource_specs = [spec]
        return None  # iterators are made where they are used

    def next_epoch(self) -> None:
        """The epoch is over; without effect where epochs do not end."""
        if not self.ends:
            return
        self.done = [0] * self._workers
        self._iterators = [None] * self._workers
        self._epoch += 1
        if self._before:
            self._before = []
            self._makers = self._make()

    @property
    def next_number(self) -> int:
        return self._base + max(self.done) + 1

    def iterator(self, worker: int) -> Any:
        """The worker's iterator, of (mark, element); to be called where its closures run."""
        if self._iterators[worker] is None:
            done = self.done[worker]
            begin = tf.constant([mark_of(self._base + done, worker), done], tf.int64)
            self._iterators[worker] = iter(self._makers[worker](*self._of_epoch, begin))
        return self._iterators[worker]

    def failed(self, worker: int) -> None:
        """Nobody knows what the worker's iterator has read, or whether it still is."""
        self._iterators[worker] = None

    def read(self, worker: int) -> int:
        """Notes that an element is trained; returns its number in the whole pipeline."""
        number = worker + self.done[worker] * self._workers
        self.done[worker] += 1
        return number

    def batch(
        self, arguments: Sequence[tf.Tensor], resource: Sequence[Any]
    ) -> tuple[tf.Tensor, Any]:
        return next(resource[0])

    def _make(self) -> list[Any]:
        return [
            _maker(self._seeded or self._data, worker, self._workers, self._function, self._before)
            for worker in range(self._workers)
        ]


def _split(layers: Sequence[Layer], workers: int, *, whole: bool) -> tuple[list[Layer], list[int]]:
    """Returns what other numbers of workers had trained, and what each of so many has.

    Args:
      layers: what was trained, in the order in which it was.
      workers: their number now.
      whole: each worker can run the whole pipeline. If it cannot, another number of workers reads
        other parts, from their beginnings.
    """
    if layers and layers[-1]["workers"] == workers:
        return list(layers[:-1]), list(layers[-1]["done"])
    return list(layers) if whole else [], [0] * workers


def _maker(data: Any, worker: int, workers: int, function: Any, before: Sequence[Layer]) -> Any:
    """Returns a concrete function that makes the worker's pipeline, of (mark, element).

    It takes an epoch's seeds, if there are any, and int64 of shape [2]: the mark of the first
    element, and how many elements are passed over before it.
    """
    make = _sharded(data, worker, workers, before)

    def dataset_fn(*given):
        *seeds, begin = given
        made = make(*seeds)
        if not isinstance(made, tf.data.Dataset):
            raise cannot_be_made(f"what the function returned, a {type(made).__name__}")
        _refuse_python(not repeatable.PYTHON.isdisjoint(_traced_ops()))
        made = made.map(function) if function else made
        # Not sent with each step: that would be one more message to the worker.
        marks = tf.data.Dataset.range(begin[0], tf.int64.max, RING)
        return tf.data.Dataset.zip((marks, made.skip(begin[1]))).prefetch(2)

    specs = [tf.TensorSpec([], tf.string)] if isinstance(data, Seeded) else []
    specs.append(tf.TensorSpec([2], tf.int64))
    traced = tf.function(dataset_fn, autograph=False).get_concrete_function(*specs)
    if any(one.dtype == tf.variant for one in traced.captured_inputs):
        raise cannot_be_made("a pipeline that was made outside the function that returns it")
    return traced


def _sharded(data: Any, worker: int, workers: int, before: Sequence[Layer]) -> Callable[..., Any]:
    """Returns what makes a worker's part of the pipeline, in a graph."""
    if not isinstance(data, Seeded):
        context = tf.distribute.InputContext(
            num_input_pipelines=workers, input_pipeline_id=worker, num_replicas_in_sync=1
        )
        return lambda: data(context) if _takes_context(data) else data()

    def make(seeds):
        graph = tf.strings.join([data.graph, seeds])
        whole: Any = upstream.deserialize_dataset_from_graph(graph, data.spec)
        return functools.reduce(_without, before, whole).shard(workers, worker)

    return make


def _without(data: Any, layer: Layer) -> Any:
    """The elements that were not trained, in their order."""
    workers, done = layer["workers"], tf.constant(layer["done"], tf.int64)

    def is_left(number: Any, _: Any) -> Any:
        return number // workers >= tf.gather(done, number % workers)

    numbered: Any = data.enumerate()
    return numbered.filter(is_left).map(lambda _, element: element)


def _takes_context(function: Any) -> bool:
    try:
        return bool(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return True


def _refuse_python(is_there: bool) -> None:
    if is_there:
        raise cannot_be_made(
            "a tf.data pipeline with Python code in it (from_generator, py_function)"
        )


def _traced_ops() -> set[str]:
    """The kinds of the ops in the graph being traced, of a pipeline that a function makes."""
    graph = tf.compat.v1.get_default_graph()
    names = {op.type for op in graph.get_operations()}
    for function in getattr(graph, "_functions", {}).values():
        definition = getattr(function, "cached_definition", None) or getattr(
            function, "definition", None
        )
        names |= {node.op for node in getattr(definition, "node_def", ())}
    return names
