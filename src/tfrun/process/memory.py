"""Tells whether a process was killed for its memory, and has one killed at a limit."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

WATCH_SECONDS = 0.02


def oom_kills(proc: Path = Path("/proc")) -> int:
    """Returns how many processes the kernel has killed for memory since boot; 0 if unknown.

    `oom_kill` of /proc/vmstat counts both a full machine and a full cgroup (Linux >= 4.13).
    """
    return _number(proc / "vmstat", "oom_kill")


def peak(proc: Path = Path("/proc")) -> int:
    """Returns the most memory that this process has used at once so far, in bytes."""
    if kilobytes := _number(proc / "self" / "status", "VmHWM:"):
        return kilobytes * 1024
    # Of a new process this may still be that of its parent.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _number(path: Path, name: str) -> int:
    """Returns the number in the line of that name; 0 if there is none."""
    try:
        lines = (line.split() for line in path.read_text().splitlines())
        return next((int(words[1]) for words in lines if words[:1] == [name]), 0)
    except (OSError, ValueError, IndexError):
        return 0


def limit(size: int) -> None:
    """Has this process killed once it has used more than so many bytes at once.

    As the kernel does it on a machine, or in a container, that has no more. No limit of `setrlimit`
    counts what is used: TensorFlow reserves gigabytes that it never touches.
    """
    threading.Thread(target=_watch, args=(size,), name="tfrun memory", daemon=True).start()


def _watch(size: int) -> None:
    while peak() <= size:  # what was used and given back again counts as well
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
