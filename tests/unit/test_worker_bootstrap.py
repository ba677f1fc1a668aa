"""What a worker's warnings look like."""

from __future__ import annotations

import logging

from tfrun.worker.bootstrap import Signed


def test_a_warning_of_ours_says_whose_it_is() -> None:
    ours, theirs = (
        logging.LogRecord(name, logging.WARNING, "x.py", 1, "half of %s", ("it",), None)
        for name in ("tfrun", "keras")
    )
    assert Signed().format(ours) == "tfrun: half of it"
    assert Signed().format(theirs) == "half of it"
