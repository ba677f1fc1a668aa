"""TensorFlow's object-based checkpoint format, written from arrays instead of live variables.

`tf.train.Checkpoint(model=model, optimizer=optimizer).save` reads the variables, so training
would have to wait for it, and under a strategy on all workers. Here the graph of objects is taken
once (`CheckpointLayout.of`), and any thread can then write any set of values (its `write`). All
of it is public: the graph is walked with `tf.train.TrackableView`, described with TensorFlow's
protocol buffer, and the tensors are written with `tf.raw_ops.SaveV2`.

What a walk does not reach has no place in such a file: seed generators and Keras metrics are no
trackable objects. Their arrays are side files (side_files.py).
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_SAVE_COUNTER = "save_counter"
_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"  # tensorflow/python/trackable/base.py


@dataclass(frozen=True, kw_only=True)
class CheckpointLayout:
    """How the variables of some objects stand in a TensorFlow checkpoint.

    Attributes:
      variables: name → live variable.
      keys: name → key in the checkpoint.
      graph: the serialized graph of objects.
    """

    variables: Mapping[str, Any]
    keys: Mapping[str, str]
    graph: bytes

    @classmethod
    def of(
        cls,
        model: Any = None,
        optimizer: Any = None,
        *,
        names: Mapping[str, Any],
    ) -> CheckpointLayout:
        """Returns the layout of `tf.train.Checkpoint(model=model, optimizer=optimizer)`.

        Reads no variable and runs no collective. Both have to be built: what is made later, such
        as the slots at the first step, is not in it. Variables that replicas aggregate when
        they are read (metrics under a strategy) are left out.

        Args:
          model: usually a model of Keras; or a list or dictionary of several.
          optimizer: usually its optimizer, likewise.
          names: name → variable, for those whose values there will be. Variables that are not in
            it are left out, and variables in it that TensorFlow does not track are passed over.
        """
        roots = {"model": model, "optimizer": optimizer}
        nodes = _walk({name: root for name, root in roots.items() if root is not None})
        saved = {id(node.obj): node for node in nodes if _is_saved(node.obj)}
        named = {name: saved[id(var)] for name, var in names.items() if id(var) in saved}
        return cls(
            variables={name: node.obj for name, node in named.items()},
            keys={name: _key(node.path) for name, node in named.items()},
            graph=_serialized(nodes, named.values()),
        )

    def write(self, prefix: Path, values: Mapping[str, np.ndarray], *, count: int = 0) -> None:
        """Writes `prefix`.index and `prefix`.data-00000-of-00001.

        Args:
          prefix: where; the directory exists.
          values: name → value, for every name of `variables`; others are passed over.
          count: the value of `tf.train.Checkpoint.save_counter`.

        Raises:
          ValueError: a value is missing, or has another shape or dtype than its variable.
          OSError: TensorFlow could not write.
        """
        import tensorflow as tf

        wrong = [name for name in self.variables if not self._fits(name, values.get(name))]
        if wrong:
            raise ValueError(f"no value that fits for {', '.join(wrong)}")
        names = sorted(self.keys, key=self.keys.__getitem__)
        with tf.device("CPU:0"):  # this worker's own; not the GPU
            tensors = [tf.convert_to_tensor(values[name]) for name in names]
            tensors += [tf.constant(count, tf.int64), tf.constant(self.graph)]
            keys = [
                *(self.keys[name] for name in names),
                _key(_SAVE_COUNTER),
                _GRAPH_KEY,
            ]
            try:
                tf.raw_ops.SaveV2(
                    prefix=str(prefix),
                    tensor_names=keys,
                    shape_and_slices=[""] * len(keys),
                    tensors=tensors,
                )
            except tf.errors.OpError as error:
                raise _os_error(error) from error

    def _fits(self, name: str, value: np.ndarray | None) -> bool:
        import tensorflow as tf

        variable = self.variables[name]
        return (
            value is not None
            and tf.as_dtype(variable.dtype) == value.dtype
            and tf.TensorShape(variable.shape).is_compatible_with(value.shape)
        )


def read(prefix: Path, keys: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Returns name → value of a checkpoint, for the names in `keys` (see `CheckpointLayout.keys`).

    Raises:
      OSError: TensorFlow cannot read it.
    """
    import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(str(prefix))
        return {name: np.asarray(reader.get_tensor(key)) for name, key in keys.items()}
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise OSError(errno.EIO, str(error), str(prefix)) from error


# The names in the file format: tensorflow/python/trackable/trackable_utils.py.
def _key(path: str) -> str:
    """Returns the key of the value of the variable at `path`."""
    return f"{path}/.ATTRIBUTES/VARIABLE_VALUE"


def _escaped(child: str) -> str:
    return child.replace(".", "..").replace("/", ".S")


def _trackable(root: Any) -> Any:
    """The object itself; a list or dictionary as TensorFlow tracks those that it is given."""
    import tensorflow as tf

    if isinstance(root, dict):
        root = {str(name): item for name, item in root.items()}
    return tf.train.Checkpoint(of=root).of if isinstance(root, list | tuple | dict) else root


@dataclass(frozen=True, kw_only=True)
class _Node:
    obj: Any
    path: str  # the shortest from the root
    children: dict[str, int]  # name → index in the list of nodes


def _walk(roots: dict[str, Any]) -> list[_Node]:
    """Every object once, breadth first, as TensorFlow itself numbers them; the root is first."""
    import tensorflow as tf

    # In the order of tf.train.Checkpoint, which sorts its arguments.
    top = {name: _trackable(root) for name, root in sorted(roots.items())}
    nodes = [_Node(obj=None, path="", children={})]
    seen: dict[int, int] = {}
    to_visit = deque([nodes[0]])
    while to_visit:
        node = to_visit.popleft()
        found = top if node.obj is None else tf.train.TrackableView.children(node.obj)
        for name, child in found.items():
            if id(child) not in seen:
                seen[id(child)] = len(nodes)
                parts = (node.path, _escaped(name)) if node.path else (_escaped(name),)
                nodes.append(_Node(obj=child, path="/".join(parts), children={}))
                to_visit.append(nodes[-1])
            node.children[name] = seen[id(child)]
    return nodes


def _is_saved(obj: Any) -> bool:
    """Whether it is a variable whose value a checkpoint can have."""
    import keras
    import tensorflow as tf

    if isinstance(obj, keras.Variable):
        obj = obj.value
    if not isinstance(obj, tf.Variable):
        return False
    distributed = isinstance(obj, tf.distribute.DistributedValues)
    return not (distributed and obj.synchronization == tf.VariableSynchronization.ON_READ)


def _serialized(nodes: list[_Node], saved: Iterable[_Node]) -> bytes:
    """The nodes as TensorFlow's TrackableObjectGraph.

    Objects without a value are in it as well: `assert_existing_objects_matched` wants to find
    each object of the model, and the path to a variable leads through them.
    """
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    with_value = {id(node) for node in saved}
    for node in nodes:
        proto = graph.nodes.add()
        for child, index in node.children.items():
            proto.children.add(local_name=child, node_id=index)
        if id(node) in with_value:
            name = str(getattr(node.obj, "path", node.obj.name)).removesuffix(":0")
            proto.attributes.add(
                name="VARIABLE_VALUE", full_name=name, checkpoint_key=_key(node.path)
            )
    counter = graph.nodes.add()
    counter.attributes.add(
        name="VARIABLE_VALUE", full_name=_SAVE_COUNTER, checkpoint_key=_key(_SAVE_COUNTER)
    )
    graph.nodes[0].children.add(local_name=_SAVE_COUNTER, node_id=len(nodes))
    _mark_paths_to_values(graph)
    return graph.SerializeToString()


def _mark_paths_to_values(graph: Any) -> None:
    """Sets `has_checkpoint_values` on what has a value and on all that leads to one."""
    parents: dict[int, set[int]] = {}
    for index, node in enumerate(graph.nodes):
        for child in node.children:
            parents.setdefault(child.node_id, set()).add(index)
    to_visit = [index for index, node in enumerate(graph.nodes) if node.attributes]
    marked = set(to_visit)
    while to_visit:
        new = parents.get(to_visit.pop(), set()) - marked
        marked |= new
        to_visit.extend(new)
    for index, node in enumerate(graph.nodes):
        node.has_checkpoint_values.value = index in marked


def _os_error(error: Any) -> OSError:
    """TensorFlow has its own errors for what the operating system said."""
    import tensorflow as tf

    numbers = {
        tf.errors.ResourceExhaustedError: errno.ENOSPC,
        tf.errors.PermissionDeniedError: errno.EACCES,
    }
    number = numbers.get(type(error), errno.EIO)
    return OSError(number, str(error.message) if number == errno.EIO else os.strerror(number))
