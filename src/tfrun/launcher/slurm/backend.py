"""`tfrun train.py` inside a Slurm allocation: one `srun` starts an agent on each node.

Its standard input carries the settings with the job's token to all of them, and then stays
open: when this side is gone, however it ended, the agents read an end of file. They connect to the
control port over the cluster's network. With TLS, the token and the certificate are in a file in
the run directory instead: what srun passes on crosses that network in clear.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections import deque
from dataclasses import replace
from pathlib import Path

from tfrun.agent.settings import AgentSettings
from tfrun.cluster.slurm import Allocation
from tfrun.control.placement import Site, Whereabouts, make_plan
from tfrun.control.protocol.tls import Certificate, pem_of
from tfrun.job import files
from tfrun.job.errors import TfrunError
from tfrun.job.exits import ExitStatus
from tfrun.job.spec import JobSpec
from tfrun.launcher.backend import AgentEnd, Door, Job
from tfrun.launcher.prestarted.discovery import Discovery
from tfrun.launcher.prestarted.group import ANY_INTERFACE
from tfrun.launcher.remote_agent import read_line
from tfrun.launcher.slurm.commands import agent_environment, labelled, srun_agents

MAX_LINE = 1 << 20
STEP_SECONDS = 3.0  # for Slurm to end a step


def slurm_job(
    spec: JobSpec,
    allocation: Allocation,
    *,
    workers: int | None,
    certificate: Certificate | None = None,
) -> Job:
    """Returns the job that runs `spec` on the nodes of an allocation, as many as it needs.

    Args:
      spec: the job.
      allocation: the nodes.
      workers: the value of -n, None when it is not given.
      certificate: what the control port shows; None is without TLS.

    Raises:
      UsageError: TFRUN-103 when the nodes have fewer slots than there are workers.
    """
    sites = [Site(agent=n, host=n, slots=slots) for n, slots in allocation.slots(workers)]
    plan = make_plan(spec, sites)
    tasks = [task.agent for task in plan.planned]
    used = {site.agent: tasks.count(site.agent) for site in sites if site.agent in tasks}
    host = allocation.here or socket.gethostname()
    backend = SlurmBackend(used, spec, host=host, pem=pem_of(certificate))
    door = Door(certificate=certificate)
    return Job(spec=spec, plan=plan, backend=backend, door=door, requeued=allocation.restarts)


class SlurmBackend:
    """One srun for all nodes."""

    listen_host = ANY_INTERFACE

    def __init__(self, tasks: dict[str, int], spec: JobSpec, *, host: str, pem: str = "") -> None:
        """Args:
        tasks: the number of tasks that will share each node, in Slurm's order.
        spec: the job.
        host: this machine, as the nodes know it.
        pem: the certificate that the control port shows, in PEM; "" is without TLS.
        """
        path = Path(spec.run_dir, f".slurm-agents-{host}-{os.getpid()}.json")
        self._discovery, self._pem = Discovery(file=path, host=host), pem
        self._tasks, self._spec, self._host = tasks, spec, host
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ended: asyncio.Queue[AgentEnd] = asyncio.Queue()
        self._said: deque[str] = deque(maxlen=20)
        self._told: set[str] = set()
        self.whereabouts = Whereabouts(
            waiting=dict.fromkeys(tasks, "srun has not started its agent yet"),
            by_connection=True,
        )

    async def start(self, port: int, settings: AgentSettings) -> None:
        if self._pem:
            await asyncio.to_thread(self._discovery.announce, port, settings.token, self._pem)
            settings = replace(settings, token="", discovery=str(self._discovery.file))
        self._process = process = await asyncio.create_subprocess_exec(
            *srun_agents(list(self._tasks)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=agent_environment(os.environ),
            limit=MAX_LINE,
            start_new_session=True,  # Ctrl-C reaches the launcher alone, which decides
        )
        told = replace(
            settings,
            agents=self._tasks,
            url=f"http://{self._host}:{port}",
            silence=self._spec.timeouts.launcher_timeout,
            directory=str(Path.cwd()),
        )
        assert process.stdin is not None
        process.stdin.write(told.to_line())
        self._reading = asyncio.create_task(self._read(process))

    async def agent_ended(self) -> AgentEnd:
        return await self._ended.get()

    async def close(self, timeout: float) -> None:
        if self._pem:
            await asyncio.to_thread(self._discovery.close)
        if self._process is None:
            return
        assert self._process.stdin is not None
        # Then the agents' input ends; then srun ends its step.
        for end in (self._process.stdin.close, self._process.terminate, self._process.kill):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._process.wait(), timeout)
                break
            end()
            timeout = STEP_SECONDS
        await self._process.wait()
        if self._reading:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        names = list(self._tasks)
        path = Path(self._spec.run_dir, "logs", "srun.log")
        with open(path, "a", encoding="utf-8", opener=files.opener) as log:
            async for raw in process.stdout:
                line = raw.decode("utf-8", "replace").rstrip()
                task, text = labelled(line)
                agent = names[task] if task is not None and task < len(names) else ""
                said = read_line(text, "this node") if agent else None
                if isinstance(said, TfrunError):
                    self._ends(agent, said.what, said.code)
                elif said:
                    self.whereabouts.waiting[agent] = "started; its agent connects"
                else:
                    log.write(line + "\n")
                    log.flush()
                    self._said.append(text)
        code = await process.wait()
        said = next((text for text in reversed(self._said) if text.strip()), "")
        how = f"srun ended with {ExitStatus(code=code)}: {said:.200}" if said else "srun has ended"
        for agent in self._tasks:
            self._ends(agent, how, "TFRUN-307")

    def _ends(self, agent: str, how: str, code: str) -> None:
        if agent not in self._told:
            self._told.add(agent)
            self.whereabouts.waiting[agent] = how
            self._ended.put_nowait(AgentEnd(agent=agent, how=how, code=code))
