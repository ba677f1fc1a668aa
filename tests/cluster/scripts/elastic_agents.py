"""Runs a job on several "machines", agents here as real processes, which come back when lost.

`elastic_agents.py WORKERS MACHINES SCRIPT`: WORKERS as after `-n`, one slot on each of MACHINES.
GRACE: seconds. TFRUN_REPLICAS: as for `tfrun`. MISSING: so many of the last machines never come.
"run/ends" gets a line for each agent that has ended: its name, and how.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

from machines import run

from tfrun.agent.settings import AgentSettings
from tfrun.control.placement import Site, Whereabouts
from tfrun.job.run_dir import next_ledger
from tfrun.job.timeouts import Timeouts
from tfrun.launcher.backend import AgentEnd
from tfrun.launcher.local.backend import LOOPBACK, LocalBackend


class ReturningBackend:
    """Local agents, each of which is started anew as soon as it has ended."""

    listen_host = LOOPBACK

    def __init__(self, sites: list[Site], logs: Path) -> None:
        self._sites, self._logs = sites, logs
        self._ends: asyncio.Queue[AgentEnd] = asyncio.Queue()
        self._agents: list[LocalBackend] = []
        self._keeping: list[asyncio.Task[None]] = []
        self.whereabouts = Whereabouts(expected={site.agent for site in sites})

    async def start(self, port: int, settings: AgentSettings) -> None:
        there = self._sites[: len(self._sites) - int(os.environ.get("MISSING", "0"))]
        self._keeping = [asyncio.create_task(self._keep(site, port, settings)) for site in there]

    async def _keep(self, site: Site, port: int, settings: AgentSettings) -> None:
        attempt = 0
        while True:
            agent = LocalBackend(site)
            self._agents.append(agent)
            await agent.start(port, replace(settings, attempt=attempt))
            end = await agent.agent_ended()
            with (self._logs.parent / "ends").open("a") as file:
                file.write(f"{end.agent} {end.how}\n")
            self._ends.put_nowait(end)
            attempt += 1

    async def agent_ended(self) -> AgentEnd:
        return await self._ends.get()

    async def close(self, timeout: float) -> None:
        for keeping in self._keeping:
            keeping.cancel()
        for agent in self._agents:
            await agent.close(timeout)


def main() -> None:
    workers, machines, script = sys.argv[1:]
    quick = {"heartbeat_interval": 0.2, "settle": 0.3, "grow_after": 0.2}
    quick["start_timeout"] = 3.0 if os.environ.get("MISSING") else Timeouts.start_timeout
    timeouts = Timeouts(preempt_grace=float(os.environ.get("GRACE") or 25), **quick)
    run_dir = Path("run").absolute()
    saved = {"checkpoint_dir": str(run_dir / "checkpoints"), "ledger": next_ledger(run_dir)}
    replicas = int(os.environ.get("TFRUN_REPLICAS", "0"))
    spec = {"timeouts": timeouts, "threads_per_worker": 1, "replicas": replicas, **saved}
    run(workers, script, "abcdefgh"[: int(machines)], ReturningBackend, **spec)


if __name__ == "__main__":
    main()
