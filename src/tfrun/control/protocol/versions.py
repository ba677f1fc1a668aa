"""Compares the versions of what computes on each machine: in one job they have to be the same.

Workers with different ones mostly understand each other, and fail, or compute something else, much
later and with a message that says nothing of it.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping

from tfrun.job import supported_versions


def installed() -> dict[str, str]:
    """Returns the versions on this machine, by program; imports none of them."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, **supported_versions.installed()}


def difference(agent: str, mine: Mapping[str, str], other: str, theirs: Mapping[str, str]) -> str:
    """Returns the words that say in what two machines differ; "" when they do not.

    Args:
      agent: a machine that has joined.
      mine: its versions.
      other: one that had joined before.
      theirs: its versions.
    """
    parts = [
        f"{program} {mine[program]!s:.40} ({other}: {theirs[program]!s:.40})"
        for program in mine
        if program in theirs and mine[program] != theirs[program]
    ]
    return f"{agent} has {', '.join(parts)}" if parts else ""
