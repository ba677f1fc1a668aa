"""Who watches a process hears of its end once, whichever comes first."""

from __future__ import annotations

import subprocess

from tfrun.agent.process_ends import ProcessEnds
from tfrun.job.exits import ExitStatus


def test_an_end_that_comes_before_its_number_is_known() -> None:
    ends, heard = ProcessEnds(), list[ExitStatus]()
    ends.ended(7, 3 << 8)
    ends.watch(7, heard.append)
    assert heard == [ExitStatus(code=3)]
    ends.watch(7, heard.append)  # another process of the same number
    ends.ended(7, 9)
    ends.ended(8, 0)
    assert heard == [ExitStatus(code=3), ExitStatus(code=-9)]


def test_with_the_parent_all_have_gone() -> None:
    process = subprocess.Popen(["sleep", "100"])
    ends, heard = ProcessEnds(), list[ExitStatus]()
    ends.watch(process.pid, heard.append)
    ends.orphaned()
    assert process.wait(5) == -9 and heard == [ExitStatus(code=-9)]
    ends.orphaned()
    assert len(heard) == 1
