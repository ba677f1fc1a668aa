"""Runs a job on two "machines" of one worker each: two agents here, as real processes.

`two_agents.py WORKERS SCRIPT` where WORKERS is as after `-n`. OTHER_PATH: a directory in which the
second machine's Python looks for packages first.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from machines import run

from tfrun.agent.settings import AgentSettings
from tfrun.control.placement import Site, Whereabouts
from tfrun.launcher.backend import AgentEnd
from tfrun.launcher.local.backend import LOOPBACK, LocalBackend


class BothBackend:
    """Two local backends as one."""

    listen_host = LOOPBACK

    def __init__(self, sites: list[Site], logs: Path) -> None:
        self._backends = [LocalBackend(site) for site in sites]
        self._ends: asyncio.Queue[AgentEnd] = asyncio.Queue()
        self._watching: list[asyncio.Task[None]] = []
        self.whereabouts = Whereabouts()

    async def start(self, port: int, settings: AgentSettings) -> None:
        for backend in self._backends:
            await backend.start(port, settings)
            self._watching.append(asyncio.create_task(self._watch(backend)))
            if "OTHER_PATH" in os.environ:
                os.environ["PYTHONPATH"] = os.environ["OTHER_PATH"]

    async def _watch(self, backend: LocalBackend) -> None:
        self._ends.put_nowait(await backend.agent_ended())

    async def agent_ended(self) -> AgentEnd:
        return await self._ends.get()

    async def close(self, timeout: float) -> None:
        for backend in self._backends:
            await backend.close(timeout)


if __name__ == "__main__":
    kept = {"checkpoint_dir": str(Path("checkpoints").absolute()), "seed": 3}
    run(sys.argv[1], sys.argv[2], ("a", "b"), BothBackend, **kept)
