"""Doubts: believed when all have them, told once."""

from __future__ import annotations

from dataclasses import replace

from tfrun.job.doubts import Doubts
from tfrun.job.reports import DoubtRaised, Error

REPORT = DoubtRaised(code="TFRUN-511", text="2 workers each train alone")
SCRIPTS = ("worker:0", "worker:1")


def test_a_doubt_is_told_once_when_all_have_it() -> None:
    doubts, told = Doubts().reported("worker:1", REPORT, SCRIPTS)
    assert (doubts.told, told) == ((), None)
    assert doubts.reported("worker:1", REPORT, SCRIPTS)[1] is None  # in another round
    doubts, told = doubts.reported("worker:0", REPORT, SCRIPTS)
    assert told == REPORT
    assert doubts.told == (told,)
    assert doubts.reported("worker:0", REPORT, SCRIPTS) == (doubts, None)
    assert told.error == Error(type="", message=str(told), traceback=str(told), code=told.code)


def test_what_one_alone_can_know_is_believed_at_once() -> None:
    doubts, told = Doubts().reported("worker:0", replace(REPORT, alone=True), SCRIPTS)
    assert told is not None and doubts.told == (told,)


def test_what_is_no_code_is_no_doubt() -> None:
    """Scripts can write to the line to their agent as well."""
    report = DoubtRaised(code="TFRUN-000", text="x")
    assert Doubts().reported("worker:0", report, ("worker:0",)) == (Doubts(), None)
