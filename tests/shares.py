"""Which of many long tests this run takes: another share with every commit, or all of them."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
from pathlib import Path

VARIABLE = "TFRUN_TEST_SHARE"


def in_share(name: str, *, of: int = 4) -> bool:
    """Whether a test is one of this commit's.

    Args:
      name: the test's.
      of: how many shares there are. TFRUN_TEST_SHARE=all takes all of them.
    """
    chosen = os.environ.get(VARIABLE) or _commit()
    if chosen == "all":
        return True
    first, mine = (int(hashlib.sha256(t.encode()).hexdigest()[:8], 16) for t in (chosen, name))
    return mine % of == first % of


@functools.cache
def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "none"
