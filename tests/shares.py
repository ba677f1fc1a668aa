"""Decides which of many long tests run: another share of them every day, or all."""

from __future__ import annotations

import datetime
import hashlib
import os

ALL = os.environ.get("TFRUN_TEST_SHARE") == "all"
DAY = int(os.environ.get("TFRUN_TEST_DAY", datetime.date.today().toordinal()))


def in_share(name: str, *, of: int) -> bool:
    """Whether a test belongs to today's share; always true with TFRUN_TEST_SHARE=all.

    Args:
      name: the test's.
      of: on one of so many days. TFRUN_TEST_DAY, a number, says which one today is.
    """
    return ALL or hashlib.sha256(name.encode()).digest()[0] % of == DAY % of
