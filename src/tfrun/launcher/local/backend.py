"""One agent on this machine, as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

from tfrun.agent.settings import AgentSettings
from tfrun.agent.snapshot_directory import state_dir
from tfrun.cluster.cluster_spec import ClusterSpec
from tfrun.control.placement import Site, Whereabouts, fixed_plan, make_plan
from tfrun.job.exits import ExitStatus
from tfrun.job.spec import JobSpec
from tfrun.launcher.backend import AgentEnd, Job
from tfrun.launcher.local.agent_process import ALONE, AgentProcess, slots_alone
from tfrun.process import lineage
from tfrun.storage import scratch

LOOPBACK = "127.0.0.1"


def local_job(
    spec: JobSpec,
    external: str = "",
    cluster: ClusterSpec | None = None,
    agent: AgentProcess | None = None,
) -> Job:
    """Returns the job that runs all of `spec` on this machine.

    Args:
      spec: the job, with its run directory.
      external: the TF_CONFIG that was in the environment, when it states the cluster.
      cluster: who listens where on this machine, when that is stated.
      agent: its only one, when that runs already.
    """
    site = Site(agent=ALONE, host=LOOPBACK, slots=slots_alone(spec.workers, external))
    if cluster:
        plan = fixed_plan(cluster, [site], evaluator=spec.evaluator)
    else:
        plan = make_plan(spec, [site], external)
    return Job(spec=spec, plan=plan, backend=LocalBackend(site, agent))


class LocalBackend:
    """Runs all tasks on this machine."""

    listen_host = LOOPBACK

    def __init__(self, site: Site, agent: AgentProcess | None = None) -> None:
        """Args:
        site: this machine.
        agent: one that runs already; by default `start` starts it.
        """
        self._site, self._agent = site, agent
        self._told = False
        self._state: Path | None = None
        self.whereabouts = Whereabouts()

    async def start(self, port: int, settings: AgentSettings) -> None:
        name, slots = self._site.agent, self._site.slots
        agent = self._agent = self._agent or AgentProcess(name, settings.spec, slots)
        self._state = state_dir(settings.token, name)
        url = settings.url or f"{'https' if settings.tls else 'http'}://{LOOPBACK}:{port}"
        agent.tell(replace(settings, agent=name, workers=slots, url=url))

    async def agent_ended(self) -> AgentEnd:
        assert self._agent is not None
        code = await self._agent.wait()
        if self._told:
            await asyncio.Event().wait()  # there is no other agent
        self._told = True
        how = [str(ExitStatus(code=code)), self._agent.last_words()]
        return AgentEnd(agent=self._site.agent, how=": ".join(filter(None, how)))

    async def close(self, timeout: float) -> None:
        if self._agent is None:
            return
        self._agent.hang_up()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._agent.wait(), timeout)
        # What an agent that was killed could not end has become ours.
        await asyncio.to_thread(lineage.kill_descendants)
        await self._agent.wait()
        if self._state:
            shutil.rmtree(self._state, ignore_errors=True)
            scratch.remove(self._state)
