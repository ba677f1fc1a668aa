"""An agent whose workers are `toy_worker.py`: real processes, but without TensorFlow."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfrun.agent import agent
from tfrun.process import sigterm

WORKER = Path(__file__).with_name("toy_worker.py")


class ToySpawner:
    """Starts `toy_worker.py` with a task's environment."""

    def __init__(self) -> None:
        self.on_exit = lambda pid, status: None
        self.pid: int | None = None
        self._waiting: set[asyncio.Task[None]] = set()

    async def prepare(self) -> float:
        return 0.0

    async def spawn(self, task: Mapping[str, Any], fds: tuple[int, int, int]) -> int:
        stdout, stderr, line = fds
        with sigterm.shielded():
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(WORKER), str(line), str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(line,),
                env=task["environment"],
                start_new_session=True,
            )
        waiting = asyncio.create_task(self._wait(process))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return process.pid

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self.on_exit(process.pid, -code if code < 0 else code << 8)

    async def close(self) -> None:
        for waiting in tuple(self._waiting):
            waiting.cancel()


if __name__ == "__main__":
    agent.FreshSpawner = ToySpawner  # type: ignore[misc]
    agent.main()
