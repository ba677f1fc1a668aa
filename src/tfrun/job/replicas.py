"""Decides which replicas each worker holds. Pure.

A replica is one piece of each global batch, and a worker computes one or several. What they give is
added up in an order that the number of replicas alone decides: a balanced binary tree, whose node
over [begin, end) parts at `begin` plus the largest power of two below `end - begin`.
"""

from __future__ import annotations

import functools

from tfrun.job.spec import JobSpec


def by_default(job: JobSpec) -> int:
    """Returns how many replicas a job has that states none; 0 is one for each worker.

    Where workers may come and go, or others go on without one, it is the most that there may be, so
    that who is there changes no bit. TensorFlow's collectives and servers have one for each worker,
    however many there are.
    """
    ways = (job.preferred or "host") if job.communication == "auto" else job.communication
    never_fewer = job.workers.low == job.workers.high and not job.stays
    if job.replicas or never_fewer or job.ps:
        return 0
    return job.workers.high if ways == "host" and job.strategy != "script" else 0


@functools.lru_cache(maxsize=64)
def held(replicas: int, workers: int, keeping: tuple[range, ...] = ()) -> tuple[range, ...]:
    """Returns the replicas of each worker, by rank.

    They follow each other, and their numbers differ by at most one. Of the ways in which that is
    possible it is the one whose workers have the fewest partial sums to send; where several have as
    few, the first ranks hold more.

    Args:
      replicas: of the job; at least as many as workers.
      workers: that hold them.
      keeping: what each is to hold in any case, by rank; () where that is nothing.

    Returns:
      An empty tuple where not all can keep what they are to keep.
    """
    if not 1 <= workers <= replicas:
        raise ValueError(f"expected 1 <= workers <= replicas, got {workers} and {replicas}")
    small, larger = divmod(replicas, workers)
    # best[more]: the fewest sums of the workers from `rank` on, `more` of whom hold one more.
    best: list[dict[int, tuple[int, int]]] = [{0: (0, 0)}]
    for rank in reversed(range(workers)):
        after, here = best[-1], dict[int, tuple[int, int]]()
        kept = keeping[rank] if keeping else range(0)
        for more in range(max(larger - rank, 0), min(larger, workers - rank) + 1):
            begin = rank * small + larger - more
            ways = [
                (partial_sums(begin, begin + small + one, replicas) + after[more - one][0], -one)
                for one in (0, 1)
                if more - one in after and _within(kept, begin, begin + small + one)
            ]
            if ways:
                here[more] = min(ways)
        best.append(here)
    if larger not in best[-1]:
        return ()
    blocks, begin, more = [], 0, larger
    for here in reversed(best[1:]):
        one = -here[more][1]
        blocks.append(range(begin, begin + small + one))
        begin, more = begin + small + one, more - one
    return tuple(blocks)


def _within(kept: range, begin: int, end: int) -> bool:
    return not kept or (begin <= kept.start and kept.stop <= end)


def partial_sums(begin: int, end: int, replicas: int) -> int:
    """Returns how many nodes of the tree of all replicas the ones in [begin, end) make up."""

    def within(low: int, high: int) -> int:
        if end <= low or high <= begin:
            return 0
        if begin <= low and high <= end:
            return 1
        middle = low + (1 << (high - low - 1).bit_length() - 1)
        return within(low, middle) + within(middle, high)

    return within(0, replicas)
