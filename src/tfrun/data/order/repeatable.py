"""Checks whether a `tf.data` pipeline gives the same elements when a script makes it again.

After a failure the script runs again, under the same global seed, and its pipeline is passed by or
read up to the place where training was. What then comes is what would have come only if nothing in
the pipeline depends on threads, on a generator's own memory, or on random numbers that are drawn
while elements are made. That is read from the pipeline's graph.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrun.job import reports
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import channel

_told: list[bool] = []  # in this process
_log = logging.getLogger("tfrun")

# Ops with a random state of their own, which moves on with every element that is made.
_RANDOM = {
    *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"),
    *("RandomShuffle", "RandomGamma", "RandomPoissonV2", "ParameterizedTruncatedNormal"),
    *("Multinomial", "RandomCrop", "SampleDistortedBoundingBoxV2"),
}
# By these a function changes a variable: the seeds of a layer of Keras's that it calls.
_ASSIGN = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_OF_DATA = "_tfrun_of_data"  # marks such a variable
_IGNORE_STATE = 1  # tensorflow/core/framework/dataset_options.proto, ExternalStatePolicy
PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


def why_not(dataset: Any) -> list[str]:
    """Returns what makes the elements of a pipeline differ from run to run; empty if nothing does.

    Args:
      dataset: a `tf.data.Dataset`. What else there is cannot be looked into.
    """
    if not isinstance(dataset, tf.data.Dataset):
        return []
    found = ["`options.deterministic` is False"] if dataset.options().deterministic is False else []
    for op, attributes in _ops(dataset):
        if op in _RANDOM:
            found.append(f"a function in it draws random numbers, not tf.random.stateless_… ({op})")
        elif op in PYTHON:
            found.append("Python code makes its elements (from_generator, py_function)")
        elif "deterministic" in attributes and attributes["deterministic"].s == b"false":
            found.append(f"a step in it does not keep the order (deterministic=False in {op})")
        elif "sloppy" in attributes and attributes["sloppy"].b:
            found.append(f"a step in it does not keep the order (sloppy in {op})")
        elif op.startswith("DataServiceDataset"):
            found.append("the tf.data service gives out its elements")
    if draws_in_parallel(dataset):
        found.append(
            "a layer in it draws random numbers for several elements at a time (num_parallel_calls)"
        )
    return list(dict.fromkeys(found))


def note_assigned(dataset: Any) -> bool:
    """Notes which variables a pipeline's functions change: they come to be where they were.

    What is passed by after a failure is made again, and changes them again.

    Returns:
      Whether some have been noted before: it is begun once more.
    """
    found = [v for _, function in _assigning(dataset) for v in function.graph.variables]
    is_again = any(map(is_of_data, found))
    for variable in found:
        setattr(variable, _OF_DATA, True)
    return is_again


def is_of_data(variable: Any) -> bool:
    """Whether a pipeline of the script changes this variable of TensorFlow's."""
    return hasattr(variable, _OF_DATA)


def draws_from_layers(dataset: Any) -> bool:
    """Whether layers of Keras's that a pipeline calls draw random numbers, or count."""
    return any(True for _ in _assigning(dataset))


def draws_in_parallel(dataset: Any) -> bool:
    """As `draws_from_layers`, for several elements at a time: which draws first is a race."""
    return any("Parallel" in type(node).__name__ for node, _ in _assigning(dataset))


def has_python(dataset: tf.data.Dataset) -> bool:
    """Whether Python code makes a pipeline's elements: only this process can then."""
    return any(op in PYTHON for op, _ in _ops(dataset))


def calls_python(dataset: Any) -> bool:
    """As `has_python`, by the functions of the pipeline's steps: no data is looked at."""
    is_pipeline = isinstance(dataset, tf.data.Dataset)
    return is_pipeline and any(op in PYTHON for op in _ops_of_functions(dataset))


def has_cache(dataset: Any) -> bool:
    """Whether a pipeline keeps its elements: what it gives then depends on its first epoch."""
    return any(op.startswith("CacheDataset") for op, _ in _ops(dataset))


def draws(dataset: Any) -> bool:
    """Whether a pipeline draws a new order when it is read again."""
    return draws_from_layers(dataset) or any(
        _is_shuffle(op, attributes) for op, attributes in _ops(dataset)
    )


def moves_while_read(dataset: Any) -> bool:
    """Whether what a pipeline gives in its next pass depends on this one having been read.

    It keeps what it reads, or draws random numbers on the way and not only when it is begun: a
    shuffle below a `repeat` draws its next order in the middle of a pass.
    """
    found = list(_ops(dataset))
    repeats = any(op.startswith(("RepeatDataset", "ForeverRepeat")) for op, _ in found)
    return any(
        op in _RANDOM
        or op in PYTHON
        or op.startswith("ShuffleAndRepeatDataset")
        or (repeats and _is_shuffle(op, attributes))
        for op, attributes in found
    ) or draws_from_layers(dataset)


# What gives the same whenever it is begun, if the functions in it do; by TensorFlow's names.
_SAME = {
    *("_OptionsDataset", "_TensorDataset", "_TensorSliceDataset", "_RangeDataset"),
    *("_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset", "_MapDataset"),
    *("_ParallelMapDataset", "_FilterDataset", "_PrefetchDataset", "_TakeDataset", "_SkipDataset"),
    *("_ZipDataset", "_ConcatenateDataset", "_EnumerateDataset", "_UnbatchDataset"),
    *("_RebatchDataset", "_FlatMapDataset", "TFRecordDatasetV2", "_TFRecordDataset"),
}


def gives_the_same(dataset: Any) -> bool:
    """Whether a pipeline gives the same elements whenever this process begins it; no data is read.

    False also where that does not show.
    """
    if not isinstance(dataset, tf.data.Dataset) or dataset.options().deterministic is False:
        return False
    for node in steps_of(dataset):
        name = type(node).__name__
        shuffles_alike = name == "_ShuffleDataset" and not node._reshuffle_each_iteration
        if name not in _SAME and not shuffles_alike:
            return False
        if getattr(node, "_deterministic", None) in (False, "false"):
            return False
    changes = (*_RANDOM, *PYTHON, *_ASSIGN)
    return not any(op in changes for op in _ops_of_functions(dataset))


def shuffles_batches(dataset: tf.data.Dataset) -> bool:
    """Whether a pipeline shuffles what it has put into batches, and no single samples."""
    node: Any = dataset
    while len(inputs := node._inputs()) == 1:
        name = type(node).__name__
        if "Batch" in name and "Unbatch" not in name:
            return False
        if "Shuffle" in name:
            return True
        node = inputs[0]
    return False


def _is_shuffle(op: str, attributes: Any) -> bool:
    if not op.startswith(("ShuffleDataset", "ShuffleAndRepeatDataset")):
        return False
    name = "reshuffle_each_iteration"
    return name not in attributes or attributes[name].b


def warn_once(dataset: Any) -> None:
    """Says that a resume may not go on with the samples that were next; once in a job."""
    if reasons := why_not(dataset) if world().is_chief else []:
        _warn_once(
            "training continues at the same step of the tf.data pipeline, but the pipeline may "
            "give other samples from there on than without the interruption: %s. A tfrun.Dataset "
            "gives the same ones.",
            "; ".join(reasons),
        )


def warn_of_draws() -> None:
    """Says that data of Python's may go on with an order of its own that is another one."""
    if world().is_chief:
        _warn_once(
            "the training data draws random numbers from Python's or numpy's global generators, "
            "and so does something else, such as a callback. What the data draws next is right, "
            "but an order that it drew earlier may be different now. Give the data a generator of "
            "its own: np.random.default_rng(0)"
        )


def tell_of_reading_ahead() -> None:
    """Says that what a layer in a pipeline draws next depends on how far that was read ahead."""
    if world().is_chief and world().size > 1 and not _told:
        _told.append(True)
        text = (
            "a layer in the tf.data pipeline draws its random numbers when a batch is read, and "
            "the `fit` before has read some batches beyond its last step. How many depends on "
            "timing, in plain Keras too, so from here on the numbers may differ from those of "
            "`python`. To get the same ones every time, call the layer in the model"
        )
        channel.emit(reports.WorkerNotice(text=text))


def _warn_once(text: str, *parts: str) -> None:
    if folder := settings().state_path:
        try:
            Path(folder, "warned-about-position").touch(exist_ok=False)
        except FileExistsError:
            return
        except OSError:
            pass
    _log.warning(text, *parts)


def steps_of(dataset: Any) -> Iterator[Any]:
    """Yields the steps of a pipeline as TensorFlow keeps them; of what is none, nothing."""
    waiting = [dataset] if isinstance(dataset, tf.data.Dataset) else []
    while waiting:
        yield (node := waiting.pop())
        waiting += node._inputs()


def _ops_of_functions(dataset: Any) -> Iterator[str]:
    """Yields the ops of the functions of a pipeline's steps."""
    for node in steps_of(dataset):
        for wrapped in node._functions():
            yield from _ops_of(wrapped.function)


def _ops_of(function: Any) -> Iterator[str]:
    graph = function.graph.as_graph_def()
    yield from (op.op for op in graph.node)
    yield from (op.op for inner in graph.library.function for op in inner.node_def)


def _assigning(dataset: Any) -> Iterator[tuple[Any, Any]]:
    """Yields the steps of a pipeline whose functions change variables, with the function."""
    for node in steps_of(dataset):
        for wrapped in node._functions():
            if any(op in _ASSIGN for op in _ops_of(wrapped.function)):
                yield node, wrapped.function


def _ops(dataset: Any) -> Iterator[tuple[str, Any]]:
    """Yields the name and the attributes of each op of a pipeline and of its functions."""
    if not isinstance(dataset, tf.data.Dataset):
        return
    variant = tf.data.experimental.to_variant(dataset)
    try:
        serialized = tf.raw_ops.DatasetToGraphV2(
            input_dataset=variant, external_state_policy=_IGNORE_STATE, strip_device_assignment=True
        )
    except tf.errors.OpError:  # some sources have no graph
        return
    graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    for node in graph.node:
        yield node.op, node.attr
    for function in graph.library.function:
        for node in function.node_def:
            yield node.op, node.attr
