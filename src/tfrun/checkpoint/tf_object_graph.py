"""The object graph of a TensorFlow checkpoint: which object has which children and values."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

SAVE_COUNTER = "save_counter"


# The names in the file format: tensorflow/python/trackable/trackable_utils.py.
def key(path: str) -> str:
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
class Node:
    obj: Any
    path: str  # the shortest from the root
    children: dict[str, int]  # name → index in the list of nodes


def walk(roots: dict[str, Any]) -> list[Node]:
    """Every object once, breadth first, as TensorFlow itself numbers them; the root is first."""
    import tensorflow as tf

    # In the order of tf.train.Checkpoint, which sorts its arguments.
    top = {name: _trackable(root) for name, root in sorted(roots.items())}
    nodes = [Node(obj=None, path="", children={})]
    seen: dict[int, int] = {}
    to_visit = deque([nodes[0]])
    while to_visit:
        node = to_visit.popleft()
        found = top if node.obj is None else tf.train.TrackableView.children(node.obj)
        for name, child in found.items():
            if id(child) not in seen:
                seen[id(child)] = len(nodes)
                parts = (node.path, _escaped(name)) if node.path else (_escaped(name),)
                nodes.append(Node(obj=child, path="/".join(parts), children={}))
                to_visit.append(nodes[-1])
            node.children[name] = seen[id(child)]
    return nodes


def is_saved(obj: Any) -> bool:
    """Whether it is a variable whose value a checkpoint can have."""
    import keras
    import tensorflow as tf

    if isinstance(obj, keras.Variable):
        obj = obj.value
    if not isinstance(obj, tf.Variable):
        return False
    distributed = isinstance(obj, tf.distribute.DistributedValues)
    return not (distributed and obj.synchronization == tf.VariableSynchronization.ON_READ)


def serialized(nodes: list[Node], saved: Iterable[Node]) -> bytes:
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
                name="VARIABLE_VALUE", full_name=name, checkpoint_key=key(node.path)
            )
    counter = graph.nodes.add()
    counter.attributes.add(
        name="VARIABLE_VALUE", full_name=SAVE_COUNTER, checkpoint_key=key(SAVE_COUNTER)
    )
    graph.nodes[0].children.add(local_name=SAVE_COUNTER, node_id=len(nodes))
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
