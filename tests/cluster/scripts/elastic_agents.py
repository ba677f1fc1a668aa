"""Runs a job on several "machines", agents here as real processes, which come back when lost.

`elastic_agents.py WORKERS MACHINES SCRIPT`: WORKERS as after `-n`, one slot on each of MACHINES.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from tfrun.control.plan import Site, Whereabouts, make_plan
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.job.timeouts import Timeouts
from tfrun.launch.backend import AgentEnd, Job
from tfrun.launch.launcher import run_job
from tfrun.launch.local import LOOPBACK, LocalBackend
from tfrun.observe.events import EventLog
from tfrun.observe.summary import print_outcome
from tfrun.observe.terminal import Terminal


class ReturningBackend:
    """Local agents, each of which is started anew as soon as it has ended."""

    listen_host = LOOPBACK

    def __init__(self, sites: list[Site], logs: Path) -> None:
        self._sites, self._logs = sites, logs
        self._ends: asyncio.Queue[AgentEnd] = asyncio.Queue()
        self._agents: list[LocalBackend] = []
        self._keeping: list[asyncio.Task[None]] = []
        self.whereabouts = Whereabouts(expected={site.agent for site in sites})

    async def start(self, port: int, config: dict[str, Any]) -> None:
        self._keeping = [
            asyncio.create_task(self._keep(site, port, config)) for site in self._sites
        ]

    async def _keep(self, site: Site, port: int, config: dict[str, Any]) -> None:
        attempt = 0
        while True:
            agent = LocalBackend(site, self._logs)
            self._agents.append(agent)
            await agent.start(port, {"attempt": attempt, **config})
            self._ends.put_nowait(await agent.agent_ended())
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
    run_dir = Path("run").absolute()
    logs = run_dir / "logs"
    logs.mkdir(parents=True)
    spec = JobSpec(
        program=Program(target=script),
        workers=WorkerRange.parse(workers),
        run_dir=str(run_dir),
        ledger=1,
        timeouts=Timeouts(heartbeat_interval=0.2, settle=0.3, grow_after=0.2),
    )
    names = "abcdefgh"[: int(machines)]
    sites = [Site(agent=name, host=LOOPBACK, slots=1) for name in names]
    plan = make_plan(spec, sites)
    terminal = Terminal(prefix_all=False, chief=plan.chief)
    events = EventLog(run_dir / "events.jsonl")
    job = Job(spec=spec, plan=plan, backend=ReturningBackend(sites, logs))
    began = time.time()
    outcome = asyncio.run(run_job(job, events, terminal))
    terminal.close()
    print_outcome(outcome, spec, plan.chief, terminal.summary, time.time() - began)
    sys.exit(outcome.exit_code)


if __name__ == "__main__":
    main()
