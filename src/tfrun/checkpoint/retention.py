"""Which checkpoints to keep."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def expired(newest_first: Sequence[str], damaged: Collection[str], keep: int) -> list[str]:
    """Returns those that have `keep` newer ones which are not known to be damaged.

    A damaged one does not count, so what is good is never removed in favour of what is not.

    Args:
      newest_first: all checkpoints.
      damaged: those that did not verify.
      keep: at least 1.
    """
    good, found = 0, []
    for name in newest_first:
        if good >= keep:
            found.append(name)
        good += name not in damaged
    return found
