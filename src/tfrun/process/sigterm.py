"""Takes SIGTERM in a worker, a preemption: it tells the agent and goes on working.

Slurm, Kubernetes and spot machines send it to every process. What follows is not for one worker
to decide, and Python runs a signal's handler only between two instructions of the main thread,
which may be in TensorFlow for minutes. So a thread of its own hears of the signal and tells the
agent. A script that installs its own handler gets the signal instead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from tfrun.job import reports
from tfrun.process import channel

_CALLED = b"\0"  # no signal's number

_forking = threading.local()
_owner: int | None = None
_write = -1


def listen() -> None:
    """Takes SIGTERM from now on. For the main thread of a worker, before its script."""
    global _owner, _write
    read, _write = os.pipe()
    os.set_blocking(_write, False)
    _owner = os.getpid()
    threading.Thread(target=_hear, args=(read,), name="tfrun sigterm", daemon=True).start()
    signal.signal(signal.SIGTERM, _on_signal)
    # Python writes the number of each signal here at once, whatever the main thread does.
    signal.set_wakeup_fd(_write, warn_on_full_buffer=False)
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_become_ordinary
    )
    unshield()


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """A process that is started meanwhile does not die of SIGTERM before it calls `unshield`.

    Who was shielded before stays so.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        if signal.SIGTERM not in before:
            unshield()


def unshield() -> None:
    """Lets SIGTERM through, also one that has come meanwhile."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _on_signal(signum: int, frame: Any) -> None:
    """Usually the thread knows already; not if the script's asyncio has taken the wakeup."""
    with contextlib.suppress(BlockingIOError):
        os.write(_write, _CALLED)


def _hear(read: int) -> None:
    while data := os.read(read, 64):
        came = signal.SIGTERM in data and signal.getsignal(signal.SIGTERM) is _on_signal
        if came or _CALLED in data:
            channel.emit(reports.WorkerPreempted())


def _before_fork() -> None:
    """What ends a child before it is an ordinary one must not look like a wish to end the worker.

    Until then the child writes to the pipe of its parent. A pool of processes that is dropped at
    once sends SIGTERM as early as that.
    """
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _become_ordinary() -> None:
    """In a child that the script has forked, SIGTERM is what it is anywhere."""
    if _owner is not None and signal.getsignal(signal.SIGTERM) is _on_signal:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _after_fork()
