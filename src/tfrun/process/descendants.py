"""Finds and ends all processes that a process has started, and those that they have started."""

from __future__ import annotations

import contextlib
import os

import psutil


def kill_descendants(keep: frozenset[int] = frozenset()) -> list[int]:
    """SIGKILLs and reaps every descendant of this process, except `keep`. Returns their pids."""
    killed = []
    for process in psutil.Process().children(recursive=True):
        if process.pid in keep:
            continue
        with contextlib.suppress(psutil.Error):
            process.kill()
            killed.append(process.pid)
    for pid in killed:
        with contextlib.suppress(ChildProcessError):  # not ours to reap, or asyncio was quicker
            os.waitpid(pid, os.WNOHANG)
    return killed
