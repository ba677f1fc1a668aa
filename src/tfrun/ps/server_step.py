"""A worker's step on the servers: each server's part is one op, done once, as a whole.

A closure that TensorFlow's coordinator retries, because its worker died, has perhaps been applied
on some servers. Each server therefore remembers the numbers of the steps that it has applied, in a
ring, and a step whose number stands there does nothing on that server. All updates on one server
are one `If` op, which is not lowered into the graph around it: it starts when all its inputs are
there, looks at the ring, and has nothing to wait for. At last the *commit* on the first server
counts the step: one `scatter_nd_add` into one variable, with the metrics and the staleness.

So a step is applied once on each server; where its first attempt was cut off between two servers,
with the gradients of two attempts, which are of the same batch: a step's number stands for what it
trains on (see `mark_of` and ps/reading_turns.py).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

RING = 1 << 16  # steps that a server remembers; no two steps in flight are further apart
MARK = tf.TensorSpec([], tf.int64)
STALENESS = 64  # bins of the histogram; the last one holds all above


@dataclass(frozen=True, kw_only=True)
class Work:
    """A part of a step on one server.

    Attributes:
      device: the server.
      inputs: tensors that it waits for.
      run: takes them; makes the ops that change variables, and returns them.
    """

    device: str
    inputs: Sequence[Any]
    run: Callable[..., Sequence[Any]]


_here = threading.local()


def traced_works() -> list[Work] | None:
    """What the step of `fit` that this thread traces does to servers; None in a custom loop."""
    return getattr(_here, "works", None)


@contextlib.contextmanager
def tracing_step() -> Iterator[list[Work]]:
    """While it lasts a step is traced, and what it does to the servers is collected."""
    before, _here.works = traced_works(), []
    try:
        yield _here.works
    finally:
        _here.works = before


def mark_of(number: int, place: int | None = None) -> int:
    """Returns what stands for a step on the servers, a `MARK`; below 2**53.

    Args:
      number: of the step: of two steps with the same place the later one has the higher number.
      place: in the ring, below `RING`; None for steps that are numbered one after the other.
    """
    return number * RING + (number % RING if place is None else place)


def run_now(works: Sequence[Work]) -> None:
    """Does the parts, each on its server, without remembering that they were done."""
    for device, parts in _by_device(works):
        with tf.device(device):
            _run(parts, [tf.nest.flatten(list(part.inputs)) for part in parts])


def _run(parts: Sequence[Work], inputs: Sequence[Sequence[Any]]) -> list[Any]:
    done = []
    for part, given in zip(parts, inputs, strict=True):
        done += part.run(*given)
    return [op for op in done if op is not None]


def _by_device(works: Sequence[Work]) -> list[tuple[str, list[Work]]]:
    found: dict[str, list[Work]] = {}
    for work in works:
        found.setdefault(work.device, []).append(work)
    return list(found.items())


class AppliedSteps:
    """What the servers remember of the steps that were applied.

    Args:
      servers: their devices.
      totals: how many numbers the metrics of a step are.

    Attributes:
      rings: by device, int64 of shape [RING]: the marks of the steps that were applied there.
      counts: float64 of shape [1 + STALENESS + totals + RING] on the first server: steps, the
        histogram of their staleness, sums of the metrics' numbers, and a ring. In one variable
        because one op changes it.
    """

    def __init__(self, servers: Sequence[str], totals: int) -> None:
        self.totals = totals
        self.rings: dict[str, tf.Variable] = {}
        for server in servers:
            with tf.device(server):
                self.rings[server] = tf.Variable(
                    tf.fill([RING], tf.constant(-1, tf.int64)), trainable=False
                )
        with tf.device(servers[0]):
            start = tf.concat(
                [
                    tf.zeros([1 + STALENESS + totals], tf.float64),
                    tf.fill([RING], tf.constant(-1.0, tf.float64)),
                ],
                0,
            )
            self.counts = tf.Variable(start, trainable=False)

    # --- in the graph of a step --------------------------------------------------------------

    def version(self) -> tf.Tensor:
        """Steps that were applied before this one began to read."""
        return self.counts.sparse_read(tf.constant([0], tf.int64))

    def apply(
        self, mark: tf.Tensor, version: tf.Tensor, metrics: tf.Tensor, works: Sequence[Work]
    ) -> tf.Tensor:
        """Does each server's parts, unless it has done them for this step, and counts the step.

        Args:
          mark: of the step, a `MARK`.
          version: from `version`, of shape [1].
          metrics: float64 of shape [totals]: what the step adds to the metrics.
          works: the parts.

        Returns:
          A tensor that is there when the step is counted.
        """
        # A tensor that crosses the wire costs as much as a small model's whole step on a server.
        counted = tf.concat([tf.reshape(tf.cast(mark, tf.float64), [1]), metrics], 0)
        first, done = self.counts.device, []
        for device, parts in _by_device(works):
            with tf.device(device):
                here = tf.cast(counted[0], tf.int64) if _same(device, first) else mark
                done.append(self._on_server(device, here, parts))
        with tf.device(first):
            return self._commit(counted, version, done)

    def _on_server(self, device: str, mark: tf.Tensor, parts: Sequence[Work]) -> tf.Tensor:
        ring = next(self.rings[server] for server in self.rings if _same(server, device))
        inputs = [tf.nest.flatten(list(part.inputs)) for part in parts]

        def fresh():
            return tf.reshape(ring.sparse_read(_place(mark)), []) < mark

        def apply():
            marked = tf.raw_ops.ResourceScatterNdUpdate(
                ref=ring.handle,
                indices=tf.expand_dims(_place(mark), 1),
                updates=tf.expand_dims(mark, 0),
            )
            with tf.control_dependencies(
                [op for op in [marked, *_run(parts, inputs)] if op is not None]
            ):
                return tf.constant(1)

        # The outer one waits for the gradients. Only then is it time to look: the attempt before
        # this one may have been applied meanwhile.
        return one_op(fresh(), lambda: one_op(fresh(), apply))

    def _commit(
        self, counted: tf.Tensor, version: tf.Tensor, after: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        """Counts the step, once all servers have applied it; once."""
        head = 1 + STALENESS + self.totals
        mark, zero = counted[:1], tf.constant([0], tf.int64)
        place = _place(tf.cast(counted[0], tf.int64)) + head

        def count():
            now = self.counts.sparse_read(tf.concat([zero, place], 0))
            late = tf.clip_by_value(tf.cast(now[:1] - version, tf.int64), 0, STALENESS - 1)
            rest = tf.range(1 + STALENESS, head, dtype=tf.int64)
            rows = tf.concat([zero, 1 + late, rest, place], 0)
            one = tf.constant([1.0, 1.0], tf.float64)
            added = tf.concat([one, counted[1:], mark - now[1:]], 0)
            # A step that was counted meanwhile adds nothing.
            fresh = now[1:] < mark
            add = tf.raw_ops.ResourceScatterNdAdd(
                ref=self.counts.handle,
                indices=tf.expand_dims(rows, 1),
                updates=tf.where(fresh, added, tf.zeros_like(added)),
            )
            with tf.control_dependencies([add] if add is not None else []):
                return tf.constant(1)

        with tf.control_dependencies(list(after)):
            fresh = self.counts.sparse_read(place) < mark
        return one_op(tf.reshape(fresh, []), count)

    # --- on the chief ------------------------------------------------------------------------

    def read(self) -> Any:
        """Returns numpy float64 of shape [1 + STALENESS + totals]."""
        size = 1 + STALENESS + self.totals
        return self.counts.sparse_read(tf.range(size, dtype=tf.int64)).numpy()

    def staleness(self) -> list[int]:
        """Steps by how many updates late they were applied; the last bin holds all above."""
        return self.read()[1 : 1 + STALENESS].astype(int).tolist()

    def clear_metrics(self) -> None:
        """Sets the metrics' sums to zero; no step may be in flight."""
        rows = tf.range(1 + STALENESS, 1 + STALENESS + self.totals, dtype=tf.int64)
        zeros = tf.zeros([self.totals], tf.float64)
        self.counts.scatter_nd_update(tf.expand_dims(rows, 1), zeros)


def one_op(condition: tf.Tensor, then: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Returns `then()` where `condition` holds and else 0, as one op on the current device.

    `tf.cond` is lowered into switches by default: each op in it would start when its own inputs
    are there. TensorFlow has no public way to say so (tensorflow/python/ops/cond_v2.py).
    """
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    result = tf.cond(condition, then, lambda: tf.constant(0))
    for op in graph.get_operations()[before:]:
        if op.type in ("If", "StatelessIf"):
            op._set_attr("_lower_using_switch_merge", tf.compat.v1.AttrValue(b=False))
    return result


def _place(mark: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.math.floormod(mark, RING), [1])


def _same(one: str, other: str) -> bool:
    """Whether two devices are of one server."""
    return tf.DeviceSpec.from_string(one).task == tf.DeviceSpec.from_string(other).task
