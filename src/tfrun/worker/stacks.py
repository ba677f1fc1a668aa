"""A worker's Python stacks on demand: it writes them to a file when its agent signals it.

Python's faulthandler does it in the signal's handler, so it works while the worker stands in
TensorFlow, in a lock or in an endless loop.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

# As progress.DUMP_SIGNAL, which ends up in the worker's log.
STACKS_SIGNAL: int = getattr(signal, "SIGRTMIN", signal.SIGUSR2) + 8
SECONDS = 2.0  # a worker whose processor is shared by many takes its time
LOOK_SECONDS = 0.02
MAX_BYTES = 1 << 16


def path_of(folder: Path, task: str) -> Path:
    """The file of a worker in its machine's state directory."""
    return folder / f"stacks-{task.replace(':', '-')}"


def write_on_signal() -> None:
    """Has this worker's process write its stacks when it is asked for them."""
    folder, task = os.environ.get("TFRUN_STATE_DIR"), os.environ.get("TFRUN_TASK")
    if not folder or not task:
        return
    path = path_of(Path(folder), task)
    hidden = path.with_name(f".{path.name}")
    try:
        file = hidden.open("ab")
        faulthandler.register(STACKS_SIGNAL, file=file, all_threads=True, chain=False)
        hidden.rename(path)  # not before: without a handler the signal ends the process
    except OSError:
        return  # the memory is full: it cannot be asked


async def taken(path: Path, interrupt: Callable[[int], None]) -> str:
    """Returns a worker's stacks as faulthandler writes them; "" when it does not answer.

    Args:
      path: its file.
      interrupt: sends the worker's process a signal.
    """
    try:
        before = path.stat().st_size
    except OSError:
        return ""  # it has only begun
    interrupt(STACKS_SIGNAL)
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
