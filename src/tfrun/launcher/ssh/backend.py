"""Starts agents on other machines over the system's OpenSSH client.

Each host has one ssh process. The control connection runs through it, as a port that is forwarded
back, so no port is opened to the network and SSH does the encryption. Its standard input carries
its agent's settings and then stays open: when this side is gone, however it ended, the other side's
reads an end of file. When the network between is gone, both sides notice by silence, and ssh stays
until the agents have given the launcher up: shorter breaks it outlives. A host that
was lost is tried again until the job ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfrun.agent.settings import AgentSettings
from tfrun.cluster.cluster_spec import ClusterSpec
from tfrun.cluster.host_lists import Host
from tfrun.control.placement import Site, Whereabouts, fixed_plan, make_plan
from tfrun.job.errors import TfrunError
from tfrun.job.spec import JobSpec
from tfrun.launcher.backend import AgentEnd, Job
from tfrun.launcher.ssh.command import Remote, ssh_command
from tfrun.launcher.ssh.connection import SshConnection
from tfrun.launcher.ssh.copy_directory import pack, synced
from tfrun.launcher.waiting import Reason

LOOPBACK = "127.0.0.1"
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)  # the last one again and again
STABLE_SECONDS = 30.0  # a connection that stood for so long was a good one


def ssh_job(
    spec: JobSpec, hosts: Sequence[Host], remote: Remote, cluster: ClusterSpec | None = None
) -> Job:
    """Returns the job that runs `spec` on `hosts`, in their order; on as many as it needs.

    With `-n MIN:MAX` the hosts that are left stand by, and step in when one is lost.

    Args:
      spec: the job.
      hosts: the hosts.
      remote: how things are there.
      cluster: who listens where, when that is stated: then all hosts are needed.

    Raises:
      UsageError: TFRUN-103 when the hosts have fewer slots than there are workers.
    """
    sites = [Site(agent=host.name, host=host.name, slots=host.slots) for host in hosts]
    if cluster:
        plan = fixed_plan(cluster, sites, evaluator=spec.evaluator)
    else:
        plan = make_plan(spec, sites)
    tasks = [task.agent for task in plan.planned]
    stand_by = spec.workers.low < spec.workers.high
    used = {host.name: host.destination for host in hosts if stand_by or host.name in tasks}
    if len(used) == 1 and not cluster:  # all are neighbours, and reach each other in any network
        plan = make_plan(spec, [replace(site, host=LOOPBACK) for site in sites])
    here = {host.name: tasks.count(host.name) or host.slots for host in hosts if host.name in used}
    return Job(spec=spec, plan=plan, backend=SshBackend(used, here, spec, remote))


class SshBackend:
    """One ssh process for each host, all at the same time."""

    listen_host = LOOPBACK

    def __init__(
        self,
        destinations: Mapping[str, str],
        tasks: Mapping[str, int],
        spec: JobSpec,
        remote: Remote,
    ) -> None:
        """Args:
        destinations: what ssh is given, by agent.
        tasks: the number of tasks that will share the machine, by agent.
        spec: the job.
        remote: how things are there.
        """
        self._destinations, self._tasks, self._spec = destinations, tasks, spec
        self._remote, self._silence = remote, spec.timeouts.launcher_timeout
        self._connections: dict[str, SshConnection] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._copy: Path | None = None
        self._ended: asyncio.Queue[AgentEnd] = asyncio.Queue()
        self._closing = asyncio.Event()
        self.whereabouts = Whereabouts()

    async def start(self, port: int, settings: AgentSettings) -> None:
        if self._remote.sync:
            directory, program = synced(self._spec.program)
            run_dir = Path(self._spec.run_dir)
            self._copy = run_dir / "code.tar.gz"
            with self._copy.open("wb") as file:
                await asyncio.to_thread(pack, directory, file, run_dir=run_dir)
            settings = replace(settings, spec=replace(self._spec, program=program))
        for agent in self._destinations:
            self.whereabouts.waiting[agent] = "connecting"
            self.whereabouts.expected.add(agent)
            trying = self._keep_trying(agent, port, settings)
            self._running[agent] = asyncio.create_task(trying)

    async def agent_ended(self) -> AgentEnd:
        return await self._ended.get()

    async def close(self, timeout: float) -> None:
        self._closing.set()
        leaving = []
        for agent, connection in self._connections.items():
            connection.hang_up()
            if connection.told and timeout:
                leaving.append(self._running[agent])
        if leaving:
            await asyncio.wait(leaving, timeout=timeout)
        for running in self._running.values():
            running.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        if self._copy:
            self._copy.unlink(missing_ok=True)

    async def _keep_trying(self, agent: str, port: int, settings: AgentSettings) -> None:
        """Connects, and again when that breaks, until it is clear that it never can be, or closing.

        What a host that was there before says, that its Python cannot be found for example, may
        well pass: a machine that starts anew takes connections before all its disks are there.
        """
        python, known, loop = self._remote.python, self.whereabouts, asyncio.get_running_loop()
        command = ssh_command(
            self._destinations[agent], python, LOOPBACK, port, silence=self._silence
        )
        log = Path(self._spec.run_dir, "logs") / f"{agent}.agent.log"
        pauses = _pauses()
        for attempt in itertools.count():
            own, began = replace(settings, agent=agent, attempt=attempt), loop.time()
            configure = functools.partial(self._configured, own)
            connection = SshConnection(command, python, log, configure, self._copy)
            self._connections[agent] = connection
            try:
                reason = await connection.run()
            except TfrunError as error:
                reason = Reason(text=error.what, permanent=True, code=error.code)
            except (OSError, ValueError, LookupError) as error:  # a full disk; a broken greeting
                reason = Reason(text=f"its connection failed here: {error}", permanent=True)
            known.waiting[agent] = reason.text
            is_over = reason.permanent and agent not in known.joined
            if is_over:
                known.expected.discard(agent)
            if connection.told or is_over:
                end = AgentEnd(agent=agent, how=reason.text, code=reason.code)
                self._ended.put_nowait(end)
            if is_over:
                return
            if connection.told and loop.time() - began > STABLE_SECONDS:
                pauses = _pauses()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closing.wait(), next(pauses))
                return

    def _configured(
        self, settings: AgentSettings, greeting: Mapping[str, Any], port: int
    ) -> AgentSettings:
        agent = settings.agent
        self.whereabouts.waiting[agent] = "connected; its agent is starting"
        # A host that is alone needs no address: its tasks are each other's neighbours.
        if greeting["address"] and len(self._destinations) > 1:
            self.whereabouts.addresses[agent] = greeting["address"]
        # A copy has a place of its own: the run directory may be shared after all.
        own = str(Path(self._spec.run_dir, "code", agent))
        return replace(
            settings,
            workers=self._tasks[agent],
            url=f"http://{LOOPBACK}:{port}",
            silence=self._silence,
            directory=own if self._copy else self._remote.directory,
            copy_bytes=self._copy.stat().st_size if self._copy else 0,
            environment=self._remote.environment,
        )


def _pauses() -> Iterator[float]:
    """Yields how many seconds to wait before each new attempt."""
    return itertools.chain(RETRY_SECONDS, itertools.repeat(RETRY_SECONDS[-1]))
