"""One agent on this machine, as a child process."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from tfrun.cluster.spec import ClusterSpec
from tfrun.control.plan import Site, Whereabouts, fixed_plan, make_plan
from tfrun.control.state_dir import remove, state_dir
from tfrun.job.exits import ExitStatus
from tfrun.job.python import python_command
from tfrun.job.spec import JobSpec
from tfrun.launch.backend import AgentEnd, Job
from tfrun.worker import lineage, sigterm

LOOPBACK = "127.0.0.1"


def local_job(spec: JobSpec, external: str = "", cluster: ClusterSpec | None = None) -> Job:
    """Returns the job that runs all of `spec` on this machine.

    Args:
      spec: the job, with its run directory.
      external: the TF_CONFIG that was in the environment, when it states the cluster.
      cluster: who listens where on this machine, when that is stated.
    """
    workers = 1 if external else spec.workers.high
    site = Site(agent="local", host=LOOPBACK, slots=workers)
    if cluster:
        plan = fixed_plan(cluster, [site], evaluator=spec.evaluator)
    else:
        plan = make_plan(spec, [site], external)
    return Job(
        spec=spec,
        plan=plan,
        backend=LocalBackend(site, Path(spec.run_dir, "logs")),
    )


class LocalBackend:
    """Runs all tasks on this machine."""

    listen_host = LOOPBACK

    def __init__(self, site: Site, logs: Path) -> None:
        self._site, self._logs = site, logs
        self._process: asyncio.subprocess.Process | None = None
        self._told = False
        self._state: Path | None = None
        self.whereabouts = Whereabouts()

    async def start(self, port: int, config: dict[str, Any]) -> None:
        lineage.adopt_orphans()
        path = self._logs / f"{self._site.agent}.agent.log"
        with path.open("ab") as log, sigterm.shielded():
            self._process = await asyncio.create_subprocess_exec(
                *python_command("tfrun.control.agent"),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the launcher alone, which decides
            )
        self._state = state_dir(config["token"], self._site.agent)
        url = f"http://{LOOPBACK}:{port}/agent"
        told = {"agent": self._site.agent, "workers": self._site.slots, "url": url, **config}
        assert self._process.stdin is not None
        # The token goes through the pipe: arguments and environments are readable by others.
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        await self._process.stdin.drain()

    async def agent_ended(self) -> AgentEnd:
        assert self._process is not None
        code = await self._process.wait()
        if self._told:
            await asyncio.Event().wait()  # there is no other agent
        self._told = True
        return AgentEnd(agent=self._site.agent, how=str(ExitStatus(code=code)))

    async def close(self, timeout: float) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), timeout)
        except asyncio.TimeoutError:
            pass
        # What an agent that was killed could not end has become ours.
        await asyncio.to_thread(lineage.kill_descendants)
        await self._process.wait()
        if self._state:
            remove(self._state)
