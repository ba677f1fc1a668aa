"""Writes a worker's Python stacks to a file when its agent signals it.

Python's faulthandler does it in the signal's handler, so it works while the worker stands in
TensorFlow, in a lock or in an endless loop. It writes the main thread's stack, which stands still
for its own handler: 100,000 such looks harmed no training. Other threads run meanwhile, and reading
their stacks ended a process by SIGSEGV about every 300th time, with Python's lock held as well, and
`sys._current_frames` does the same (Python 3.11, while TensorFlow's threads come and go). So they
are written only for who asks for them, and last of all where a worker is about to be ended.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfrun.job.settings import settings

# Not SIGUSR1 or SIGUSR2, which scripts and schedulers use.
LOG_SIGNAL: int = getattr(signal, "SIGRTMIN", signal.SIGUSR2) + 7  # for it in the worker's log
STACK_SIGNAL, THREADS_SIGNAL = LOG_SIGNAL + 1, LOG_SIGNAL + 2
LOG_THREADS_SIGNAL = LOG_SIGNAL + 3  # of one that is ended anyway: it may be the end of it
LOG_SECONDS = 1.0  # for them to be written there
SECONDS = 2.0  # a worker whose processor is shared by many takes its time
LOOK_SECONDS = 0.02
MAX_BYTES = 1 << 16


def path_of(folder: Path, process: str) -> Path:
    """The file of a worker's process in its machine's state directory; its task may change."""
    return folder / f"stacks-{process.replace(':', '-')}"


def write_on_signal() -> None:
    """Has this worker's process write its stack, or all its threads', when it is asked for it.

    To its log as well: for who looks for the place where it hangs.
    """
    log: Any = sys.__stderr__ or 2
    faulthandler.register(LOG_SIGNAL, file=log, all_threads=False, chain=False)
    faulthandler.register(LOG_THREADS_SIGNAL, file=log, all_threads=True, chain=False)
    folder, task = settings().state_path, settings().task
    if not folder or not task:
        return
    path = path_of(folder, str(os.getpid()))
    hidden = path.with_name(f".{path.name}")
    try:
        file = hidden.open("ab")
        for number, threads in ((STACK_SIGNAL, False), (THREADS_SIGNAL, True)):
            faulthandler.register(number, file=file, all_threads=threads, chain=False)
        hidden.rename(path)  # not before: without a handler the signal ends the process
    except OSError:
        return  # the memory is full: it cannot be asked


def write_on_crash() -> None:
    """Has this process write its stacks to its log when SIGSEGV or the like ends it."""
    faulthandler.enable(file=sys.__stderr__ or 2, all_threads=True)


async def taken(path: Path, interrupt: Callable[[int], None], *, threads: bool) -> str:
    """Returns a worker's stack as faulthandler writes it; "" when it does not answer.

    Args:
      path: its file.
      interrupt: sends the worker's process a signal.
      threads: those of all threads, at a risk.
    """
    try:
        before = path.stat().st_size
    except OSError:
        return ""  # it has only begun
    interrupt(THREADS_SIGNAL if threads else STACK_SIGNAL)
    until, last = time.monotonic() + SECONDS, before
    while time.monotonic() < until:
        await asyncio.sleep(LOOK_SECONDS)
        size = path.stat().st_size if path.exists() else before
        if size > before and size == last:  # nothing has come since the last look
            break
        last = size
    with path.open("rb") as file:
        file.seek(before)
        return file.read(MAX_BYTES).decode("utf-8", "replace")
