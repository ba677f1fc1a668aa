"""Ties processes to those that started them: nothing outlives the launcher, however it ends.

On Linux the kernel does it (`PR_SET_PDEATHSIG`, child subreapers). Elsewhere the pipes that each
process holds from its parent tell it by closing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent_pid: int) -> None:
    """Has this process end when `parent_pid` does; leaves if it already has."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=watch_parent, args=(parent_pid,), daemon=True).start()
    if os.getppid() != parent_pid:  # it ended before the call above
        os._exit(1)


def watch_parent(parent_pid: int, interval: float = 0.5) -> None:
    """Ends this process soon after its parent, where the kernel does not offer to."""
    while os.getppid() == parent_pid:
        time.sleep(interval)
    os._exit(1)


def adopt_orphans() -> None:
    """Makes processes whose parents die become children of this one, so that it can end them."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_group(pid: int, signum: int) -> bool:
    """Signals the process group that `pid` leads; False when there is none, or none yet."""
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def kill_descendants(keep: int | None = None) -> None:
    """SIGKILLs and reaps all that this process has started, and what they have, except `keep`."""
    import psutil  # here: a zygote does without it

    killed = []
    for process in psutil.Process().children(recursive=True):
        if process.pid != keep:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed.append(process.pid)
    for pid in killed:
        with contextlib.suppress(ChildProcessError):  # not ours to reap, or asyncio was quicker
            os.waitpid(pid, os.WNOHANG)


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped a process (SIGSTOP), so that it does nothing at all."""
    return stopped_at(pid) is not None


def stopped_at(pid: int) -> float | None:
    """The processor seconds that a stopped process has used; None of one that is not stopped.

    One that is stopped again and again, as a limit of its processor time does it, uses some more
    in between.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            if process.status() != psutil.STATUS_STOPPED:
                return None
            used = process.cpu_times()
            return used.user + used.system
    except psutil.Error:
        return None


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
