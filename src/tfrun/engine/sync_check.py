"""Checks that all workers hold the same model, in every bit of every variable. For debugging."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrun.engine.agree import sum_over_workers
from tfrun.engine.state_slots import Slot
from tfrun.job.errors import TfrunError


def check_in_sync(named_variables: Iterable[tuple[str, Any]]) -> None:
    """Compares checksums of variables between all replicas, in one small all-reduce.

    Every worker must call this with the same variables in the same order, between two steps.
    Variables that are kept apart by design are left out: a metric's totals hold each worker's
    own part of the data and are added up when they are read, and a slot is on one worker.

    Args:
      named_variables: pairs of a name and a Keras or TensorFlow variable made in a strategy's
        scope.

    Raises:
      TfrunError: TFRUN-504 on all workers, naming the first variable that differs and where.
    """
    shared = [
        (name, variable)
        for name, variable in (
            (n, getattr(v, "value", v)) for n, v in named_variables if not isinstance(v, Slot)
        )
        if isinstance(variable, tf.distribute.DistributedValues)
        and variable.synchronization != tf.VariableSynchronization.ON_READ
    ]
    if not shared:
        return
    strategy = shared[0][1].distribute_strategy
    copies = [strategy.experimental_local_results(variable) for _, variable in shared]
    local = np.array([[checksum(c.numpy()) for c in replicas] for replicas in copies]).T
    # This worker's replicas in their own rows, zeros in the others': the sum is all rows.
    several = strategy.extended._in_multi_worker_mode()
    first = strategy.extended._id_in_cluster * len(local) if several else 0
    workers = strategy.extended._num_workers if several else 1
    every = np.zeros((workers * len(local), len(shared)), np.int64)
    every[first : first + len(local)] = local
    if several:
        every = sum_over_workers(strategy, every.ravel()).reshape(every.shape)
    difference = first_difference([name for name, _ in shared], every)
    if difference is not None:
        name, ranks = difference
        raise TfrunError(
            "TFRUN-504",
            f"the variable {name!r} has another value on replica "
            f"{', '.join(map(str, ranks))} than on replica 0",
            expected="bit-identical variables on all workers after every step",
            fix="Look for an assignment from local data, an unseeded random number, or a file "
            "that differs between the workers or that only some of them have loaded",
        )


def checksum(value: np.ndarray) -> int:
    """64 bits of BLAKE2 over the shape, the dtype and the bytes of `value`, as a signed integer."""
    digest = hashlib.blake2b(f"{value.shape}{value.dtype}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(value).tobytes())
    return int.from_bytes(digest.digest(), "little", signed=True)


def first_difference(
    names: Sequence[str], checksums: np.ndarray
) -> tuple[str, tuple[int, ...]] | None:
    """The first variable that differs, and the replicas on which it does.

    Args:
      names: n names.
      checksums: int64 array of shape (replicas, n).

    Returns:
      The name and the replicas that differ from replica 0; None when all agree.
    """
    for name, column in zip(names, checksums.T, strict=True):
        ranks = np.flatnonzero(column != column[0])
        if len(ranks):
            return name, tuple(int(rank) for rank in ranks)
    return None
