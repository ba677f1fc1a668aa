"""Settings of workers that have a few possible values."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tfrun.job.errors import UsageError


def choice(variable: str, values: Sequence[str], otherwise: str) -> str:
    """What a variable says; the first of `values` where it is not set or empty.

    Args:
      variable: its name.
      values: all that it may say.
      otherwise: what is wrong with another value, to be read after that.

    Raises:
      UsageError: TFRUN-105, when it says something else.
    """
    name = os.environ.get(variable) or values[0]
    if name in values:
        return name
    raise UsageError(
        "TFRUN-105", f"{name!r:.60} {otherwise}", where=variable, expected=", ".join(values)
    )
