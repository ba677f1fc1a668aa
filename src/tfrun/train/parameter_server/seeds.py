"""Workers that each run the whole of a pipeline, for a part of it, have to agree on its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def seeded(graph: tf.Tensor) -> tf.Tensor:
    """Returns a `tf.data` pipeline in which shuffles without a seed have one, always the same.

    Args:
      graph: of `DatasetToGraphV2`, a scalar string.
    """
    definition = tf.compat.v1.GraphDef.FromString(graph.numpy())
    nodes = {node.name: node for node in definition.node}
    for number, node in enumerate(list(definition.node)):
        # ShuffleDatasetV3 and its like: the data, the size of the buffer, two seeds, ...
        if not node.op.startswith("Shuffle") or not all(map(_is_zero, _seeds(node, nodes))):
            continue
        for place in (2, 3):
            made = definition.node.add()
            made.CopyFrom(nodes[_name(node.input[place])])
            made.name = f"tfrun_seed_{number}_{place}"
            made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(number + 1, tf.int64))
            node.input[place] = f"{made.name}:0"
    return tf.constant(definition.SerializeToString())


def _seeds(node: Any, nodes: dict[str, Any]) -> list[Any]:
    return [nodes.get(_name(name)) for name in node.input[2:4]]


def _is_zero(node: Any) -> bool:
    if node is None or node.op != "Const" or "value" not in node.attr:
        return False
    return not np.any(tf.make_ndarray(node.attr["value"].tensor))


def _name(text: str) -> str:
    return text.removeprefix("^").partition(":")[0]
