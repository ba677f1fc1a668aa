"""Which worker updates which weight. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def owners_of(sizes: Sequence[int], workers: int) -> list[int]:
    """Divides weights among workers, so that these have about as much.

    Largest first, each to who has least (Graham 1969): nobody has more than 4/3 of the least that
    is possible, which is the largest weight, or an equal part of all.

    Args:
      sizes: of the weights, in bytes.
      workers: how many.

    Returns:
      The rank of each weight's owner.
    """
    owners, loads = [0] * len(sizes), [0] * workers
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        owners[i] = min(range(workers), key=lambda rank: (loads[rank], rank))
        loads[owners[i]] += sizes[i]
    return owners
