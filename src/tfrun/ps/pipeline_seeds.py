"""Makes workers that each run a whole pipeline, for a part of it, agree on its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


class Seeded:
    """A `tf.data` pipeline whose shuffles have seeds of an epoch's.

    A shuffle without a seed gets one, always the same. In the first epoch the others keep theirs.

    Args:
      graph: of `DatasetToGraphV2`, a scalar string.
      spec: of its elements.

    Attributes:
      graph: the pipeline without its seeds, a scalar string. Together with `of_epoch` behind it,
        it is a serialized graph: those of protocol buffers are joined by writing them in a row.
    """

    def __init__(self, graph: tf.Tensor, spec: Any) -> None:
        self.spec = spec
        definition = tf.compat.v1.GraphDef.FromString(graph.numpy())
        nodes = {node.name: node for node in definition.node}
        self._shuffles: dict[int, tuple[list[int], bool]] = {}
        for number, node in enumerate(list(definition.node)):
            # ShuffleDatasetV3 and its like: the data, the size of the buffer, two seeds, ...
            if not node.op.startswith("Shuffle"):
                continue
            seeds = [_value(nodes.get(_name(name))) for name in node.input[2:4]]
            if len(seeds) == 2 and None not in seeds:
                given = [seed or 0 for seed in seeds]
                anew = node.attr["reshuffle_each_iteration"].b
                self._shuffles[number] = given if any(given) else [number + 1] * 2, anew
                for place, name in zip((2, 3), _names(number), strict=True):
                    node.input[place] = f"{name}:0"
                _forget_generator(definition, node, nodes)
        self.graph = tf.constant(definition.SerializeToString())

    def of_epoch(self, epoch: int) -> tf.Tensor:
        """Returns the seeds of an epoch, counted from 0: a scalar string."""
        definition = tf.compat.v1.GraphDef()
        for number, (given, anew) in self._shuffles.items():
            seeds = given
            if epoch and anew:
                drawn = np.random.SeedSequence([*(seed % (1 << 63) for seed in given), epoch])
                seeds = [int(word) >> 1 for word in drawn.generate_state(2, np.uint64)]
            for name, seed in zip(_names(number), seeds, strict=True):
                made = definition.node.add()
                made.name, made.op = name, "Const"
                made.attr["dtype"].type = tf.int64.as_datatype_enum
                made.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(seed, tf.int64))
        return tf.constant(definition.SerializeToString())


def _forget_generator(definition: Any, node: Any, nodes: dict[str, Any]) -> None:
    """Has a shuffle make its own generator of seeds: it names the chief's, which might be here."""
    for place, name in enumerate(node.input):
        given = nodes.get(_name(name))
        if given is not None and given.attr["dtype"].type == tf.resource.as_datatype_enum:
            made = definition.node.add(name=f"tfrun_{node.name}_{place}", op="DummySeedGenerator")
            node.input[place] = f"{made.name}:0"


def _names(number: int) -> tuple[str, str]:
    return f"tfrun_seed_{number}", f"tfrun_seed_{number}_2"


def _value(node: Any) -> int | None:
    if node is None or node.op != "Const" or "value" not in node.attr:
        return None
    return int(tf.make_ndarray(node.attr["value"].tensor))


def _name(text: str) -> str:
    return text.removeprefix("^").partition(":")[0]
