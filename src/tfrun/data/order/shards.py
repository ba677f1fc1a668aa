"""Computes which part of a global batch belongs to which replica. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The replicas that one pipeline feeds: `count` of `total`, from number `first`."""

    first: int = 0
    count: int = 1
    total: int = 1

    @classmethod
    def of(cls, context: Any) -> Replicas:
        """Returns those of this worker, by its `tf.distribute.InputContext`."""
        total = context.num_replicas_in_sync
        count = total // context.num_input_pipelines
        return cls(first=context.input_pipeline_id * count, count=count, total=total)


def share(count: int, rank: int, size: int) -> tuple[int, int]:
    """Returns the contiguous part [begin, end) of `count` samples for `rank` of `size`.

    The parts of all ranks follow each other and cover everything; they differ by at most one
    sample, and the first ranks have the larger ones. With fewer samples than ranks the last
    ranks' parts are empty.
    """
    small, larger = divmod(count, size)
    begin = rank * small + min(rank, larger)
    return begin, begin + small + (rank < larger)


def steps_per_epoch(samples: int, batch: int) -> int:
    """Returns the number of global batches of an epoch; the last one may be short."""
    return -(-samples // batch)


def share_of_step(
    step: int, samples: int, batch: int, rank: int, size: int, skip: int = 0
) -> tuple[int, int]:
    """Returns the positions [begin, end) in the epoch's order that `rank` of `size` reads.

    Args:
      step: global batch of the epoch, from 0.
      samples: of the epoch.
      batch: samples of a global batch.
      rank: of the replica.
      size: number of replicas.
      skip: samples at the batch's beginning that are done already.
    """
    first, last = step * batch + skip, min(step * batch + batch, samples)
    begin, end = share(last - first, rank, size)
    return first + begin, first + end


def share_of_replicas(
    step: int, samples: int, batch: int, replicas: Replicas, skip: int = 0
) -> tuple[int, int]:
    """Returns the same of neighbouring replicas."""
    first, total = replicas.first, replicas.total
    begin, end = share_of_step(step, samples, batch, first, total, skip)
    if replicas.count > 1:
        _, end = share_of_step(step, samples, batch, first + replicas.count - 1, total, skip)
    return begin, end


def constant_share(samples: int, batch: int, size: int) -> int | None:
    """Returns the samples of each replica in each step, or None where these differ.

    The answer is the same on all workers: with it they agree on static batch dimensions.
    """
    return batch // size if samples % batch == 0 and batch % size == 0 else None
