"""Tells whoever watches a process of its end, also where that comes before its number is known."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from tfrun.job.exits import ExitStatus
from tfrun.process.memory import oom_kills

OnEnd = Callable[[ExitStatus], None]


class ProcessEnds:
    """The ends of all processes that one spawner has started."""

    def __init__(self) -> None:
        self._watched: dict[int, OnEnd] = {}
        self._early: dict[int, ExitStatus] = {}
        self._oom_kills = oom_kills()

    def watch(self, pid: int, on_end: OnEnd) -> None:
        """Has `on_end` called with how the process ends; instead of who watched it before."""
        if pid in self._early:
            return on_end(self._early.pop(pid))
        self._watched[pid] = on_end

    def ended(self, pid: int, status: int) -> None:
        """Takes the news of an end, with the status that `waitpid` gives."""
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        memory = killed and oom_kills() > self._oom_kills
        self._oom_kills = oom_kills()
        exited = ExitStatus.from_wait_status(status, out_of_memory=memory)
        if on_end := self._watched.pop(pid, None):
            on_end(exited)
        else:
            self._early[pid] = exited

    def orphaned(self) -> None:
        """Takes the news that the parent of all has died, and with it they have."""
        for pid in tuple(self._watched):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.ended(pid, signal.SIGKILL)
