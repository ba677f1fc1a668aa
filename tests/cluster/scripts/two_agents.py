"""Runs a job on two "machines" of one worker each: two agents here, as real processes.

`two_agents.py WORKERS SCRIPT` where WORKERS is as after `-n`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from tfrun.control.plan import Site, Whereabouts, make_plan
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.launch.backend import AgentEnd, Job
from tfrun.launch.launcher import run_job
from tfrun.launch.local import LOOPBACK, LocalBackend
from tfrun.observe.events import EventLog
from tfrun.observe.summary import print_outcome
from tfrun.observe.terminal import Terminal


class BothBackend:
    """Two local backends as one."""

    listen_host = LOOPBACK

    def __init__(self, sites: list[Site], logs: Path) -> None:
        self._backends = [LocalBackend(site, logs) for site in sites]
        self._ends: asyncio.Queue[AgentEnd] = asyncio.Queue()
        self._watching: list[asyncio.Task[None]] = []
        self.whereabouts = Whereabouts()

    async def start(self, port: int, config: dict) -> None:
        for backend in self._backends:
            await backend.start(port, config)
            self._watching.append(asyncio.create_task(self._watch(backend)))

    async def _watch(self, backend: LocalBackend) -> None:
        self._ends.put_nowait(await backend.agent_ended())

    async def agent_ended(self) -> AgentEnd:
        return await self._ends.get()

    async def close(self, timeout: float) -> None:
        for backend in self._backends:
            await backend.close(timeout)


def main() -> None:
    run_dir = Path("run").absolute()
    logs = run_dir / "logs"
    logs.mkdir(parents=True)
    spec = JobSpec(
        program=Program(target=sys.argv[2]),
        workers=WorkerRange.parse(sys.argv[1]),
        run_dir=str(run_dir),
    )
    sites = [Site(agent=name, host=LOOPBACK, slots=1) for name in ("a", "b")]
    plan = make_plan(spec, sites)
    terminal = Terminal(prefix_all=False, chief=plan.chief)
    events = EventLog(run_dir / "events.jsonl")
    job = Job(spec=spec, plan=plan, backend=BothBackend(sites, logs))
    began = time.time()
    outcome = asyncio.run(run_job(job, events, terminal))
    terminal.close()
    print_outcome(outcome, spec, plan.chief, terminal.summary, time.time() - began)
    sys.exit(outcome.exit_code)


if __name__ == "__main__":
    main()
