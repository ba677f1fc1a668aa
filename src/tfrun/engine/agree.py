"""Small sums over all workers, outside the train function, by which they agree on things.

Each function here is a collective: every worker has to call it, at the same point.
"""

from __future__ import annotations

import fractions
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrun.collective import stamps
from tfrun.engine import host_collective
from tfrun.engine.host_collective_ops import Sum
from tfrun.job import unmatched_call
from tfrun.job.world import world
from tfrun.process import progress

_SMALLEST = 16  # numbers in a sum
_CHUNK = 16 << 20  # bytes in one collective


class Waited:
    """How long this process has waited here for the other workers, since it began.

    Attributes:
      seconds: of all calls.
    """

    seconds = 0.0


waited = Waited()


def multi_worker_strategy(model: Any) -> Any | None:
    """Returns the strategy that `model` shares with other workers, None when it has none.

    A model made outside the scope from another one's layers has that one's variables: it counts.
    """
    strategies = [getattr(model, "distribute_strategy", None)]
    if getattr(model, "built", False):
        strategies += [
            getattr(variable.value, "distribute_strategy", None) for variable in model.weights[:1]
        ]
    return next(filter(spans_workers, strategies), None)


def spans_workers(strategy: Any) -> bool:
    """True for a `MultiWorkerMirroredStrategy` of at least two workers, or that may have others."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return False
    return strategy.extended._in_multi_worker_mode()


def _worker_count(strategy: Any) -> int:
    return strategy.extended._num_workers


def sum_over_workers(strategy: Any, values: np.ndarray) -> np.ndarray:
    """Returns the sum of each worker's `values` (one dimension, equal shape and dtype on all)."""
    calls = host_collective.calls_of(strategy)
    began = time.perf_counter()
    try:
        with progress.in_collective():
            if calls is not None:  # without TensorFlow, which would trace something first
                return calls.all_reduce(Sum(tensors=[values]))[0].numpy()
            # A few sizes only: each one is traced anew.
            size = max(_SMALLEST, 1 << (len(values) - 1).bit_length())
            padded = np.zeros(size, values.dtype)
            padded[: len(values)] = values
            return _summing(strategy)(tf.constant(padded)).numpy()[: len(values)]
    finally:
        waited.seconds += time.perf_counter() - began


@functools.lru_cache(maxsize=4)
def _summing(strategy: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the traced sum: called eagerly, TensorFlow starts a thread pool for each one."""
    local_replicas = len(strategy.extended.worker_devices)

    # Without autograph: converting two lines of Python takes a tenth of a second.
    @tf.function(autograph=False)
    def total(values: tf.Tensor) -> tf.Tensor:
        def contribution() -> tf.Tensor:
            # Replicas are numbered worker by worker, so this is each worker's first one.
            context = tf.distribute.get_replica_context()
            first = tf.get_static_value(context.replica_id_in_sync_group) % local_replicas == 0
            return values if first else tf.zeros_like(values)

        summed = strategy.reduce("SUM", strategy.run(contribution), axis=None)
        return strategy.experimental_local_results(summed)[0]

    return total


def check_same_call(strategy: Any) -> None:
    """Has the workers find out whether all of them are in the same call of the script.

    The host collective does so at each of its calls; TensorFlow's own takes one sum for another.

    Raises:
      TfrunError: TFRUN-406, when they are not.
    """
    if host_collective.calls_of(strategy) is not None:
        return
    here, stands = world(), stamps.standing()
    rows = np.zeros((here.size, 2), np.int64)
    rows[here.rank] = stands.call, stands.line
    rows = sum_over_workers(strategy, rows.ravel()).reshape(rows.shape)
    for rank, (call, line) in enumerate(rows.tolist()):
        if call != stands.call:
            there = unmatched_call.stands(call, line)
            mine = unmatched_call.stands(stands.call, stands.line)
            reason = f"worker {rank} is {there}, and this one {mine}"
            raise RuntimeError(unmatched_call.marked(reason))


def any_worker(strategy: Any, flags: Sequence[bool]) -> list[bool]:
    """Returns for each flag whether it is set on at least one worker."""
    return [bool(count) for count in sum_over_workers(strategy, np.array(flags, np.int64))]


def mean_over_workers(strategy: Any, values: Any) -> Any:
    """Returns the structure `values` with each Python float replaced by its mean over workers.

    A value that is equal on all workers stays exactly itself. Leaves that are no numbers stay as
    they are.
    """
    leaves = keras.tree.flatten(values)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, float | int)]
    halves = halves_of(np.array([leaves[i] for i in places], np.float64))
    sums = sum_over_workers(strategy, halves.ravel()).reshape(halves.shape)
    for place, *parts in zip(places, *sums.tolist(), strict=True):
        leaves[place] = mean_of(parts, _worker_count(strategy))
    return keras.tree.pack_sequence_as(values, leaves)


def halves_of(numbers: np.ndarray) -> np.ndarray:
    """Two parts of each float64, shape [2, n]: of few digits, so that equal ones add up exactly."""
    high = (numbers.view(np.int64) & -(1 << 27)).view(np.float64)
    return np.stack([high, np.where(np.isfinite(high), numbers - high, 0.0)])


def mean_of(sums: Sequence[float], count: int) -> float:
    """The mean of numbers whose `halves_of` have these sums."""
    if not all(map(math.isfinite, sums)):
        return sum(sums)
    return float(sum(map(fractions.Fraction, sums)) / count)


def bytes_given(strategy: Any, data: bytes | None, has: Sequence[bool]) -> bytes:
    """Returns what some workers have on those that lack it, and its own on who has it.

    Args:
      strategy: the multi-worker strategy.
      data: what this worker has.
      has: whether each worker has it, by rank; equal on all.
    """
    source = world().rank == list(has).index(True)
    mine = data if has[world().rank] else None
    size = np.array([len(mine or b"")], np.int64)
    if host_collective.calls_of(strategy) is None:
        (length,) = sum_over_workers(strategy, size if source else 0 * size).tolist()
        made = _summed(strategy, (mine or b"") if source else b"", length)
        return made if mine is None else mine
    give(strategy, [size], has)
    block = np.empty(size, np.uint8) if mine is None else np.frombuffer(mine, np.uint8)
    give(strategy, [block], has)
    return block.tobytes() if mine is None else mine


def give(strategy: Any, arrays: Sequence[np.ndarray], has: Sequence[bool]) -> None:
    """Gives arrays to those workers that lack them, which write them over their own.

    Args:
      strategy: one whose workers talk through the host collective.
      arrays: contiguous; dtypes and shapes are equal on all workers.
      has: whether each worker has them already, by rank; equal on all.
    """
    calls: Any = host_collective.calls_of(strategy)
    began = time.perf_counter()
    try:
        with progress.in_collective():
            calls.give(arrays, has)
    finally:
        waited.seconds += time.perf_counter() - began


def _summed(strategy: Any, blob: bytes, length: int) -> bytes:
    """The bytes of the one worker that has any: the others add zeros."""
    data = np.frombuffer(blob.ljust(length + -length % 4, b"\0"), np.int32)
    parts = []
    for start in range(0, len(data), _CHUNK // 4):
        part = data[start : start + _CHUNK // 4]
        parts.append(sum_over_workers(strategy, part))
    return b"".join(part.tobytes() for part in parts)[:length]


def from_chief(strategy: Any, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns the chief's arrays on every worker, bit for bit, whatever their dtypes.

    Args:
      strategy: the multi-worker strategy.
      values: arrays; shapes and dtypes are equal on all workers, contents matter on the chief.
    """
    has = [rank == 0 for rank in range(world().size)]
    if host_collective.calls_of(strategy) is not None:
        made = [np.array(value, order="C") for value in values]
        give(strategy, made, has)
        return made
    mine = b"".join(value.tobytes() for value in values)
    blob, result, start = bytes_given(strategy, mine, has), [], 0
    for value in values:
        raw = blob[start : start + value.nbytes]
        result.append(np.frombuffer(raw, value.dtype).reshape(value.shape))
        start += value.nbytes
    return result
