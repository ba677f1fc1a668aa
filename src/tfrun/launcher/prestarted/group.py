"""The launcher of a group of processes that somebody else has started together.

Slurm's `srun tfrun train.py` and Kubernetes' pods are such groups. Each process becomes an agent;
the first one is the launcher too, and the others look for it. They connect to its control port
over the network, with the job's token: a `Discovery` is how they come by both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tfrun.agent.settings import AgentSettings
from tfrun.control.placement import Site, Whereabouts, make_plan
from tfrun.control.protocol import tls
from tfrun.job.spec import JobSpec
from tfrun.launcher.backend import AgentEnd, Door, Job
from tfrun.launcher.local.backend import LocalBackend
from tfrun.launcher.prestarted.discovery import Discovery

ANY_INTERFACE = "0.0.0.0"


def group_job(
    spec: JobSpec,
    sites: Sequence[Site],
    own: str,
    discovery: Discovery,
    *,
    returns: bool,
    address: str = "",
    certificate: tls.Certificate | None = None,
) -> Job:
    """Returns the job of a group whose launcher this process is.

    Args:
      spec: the job.
      sites: all agents of the group, in rank order.
      own: this process's.
      discovery: how the others find it.
      returns: somebody starts the others again when they end.
      address: where the others reach this machine; by default at its name.
      certificate: what the control port shows; None is without TLS.

    Raises:
      UsageError: TFRUN-103 when there are fewer processes than workers.
    """
    (site,) = (site for site in sites if site.agent == own)
    others = {site.agent for site in sites} - {own}
    known = Whereabouts(
        addresses={own: address} if address else {},
        waiting=dict.fromkeys(others, discovery.why),
        expected=set(others) if returns else set(),
        by_connection=True,
    )
    token = discovery.known.token if discovery.known else ""
    door = Door(certificate=certificate, port=discovery.port, token=token)
    backend = GroupBackend(LocalBackend(site), discovery, tls.pem_of(certificate), known)
    return Job(spec=spec, plan=make_plan(spec, sites), backend=backend, door=door)


class GroupBackend:
    """Starts its own agent and waits for the others, which start by themselves."""

    listen_host = ANY_INTERFACE

    def __init__(
        self, local: LocalBackend, discovery: Discovery, pem: str, whereabouts: Whereabouts
    ) -> None:
        self._local, self._discovery, self._pem = local, discovery, pem
        self.whereabouts = whereabouts

    async def start(self, port: int, settings: AgentSettings) -> None:
        await asyncio.to_thread(self._discovery.announce, port, settings.token, self._pem)
        await self._local.start(port, replace(settings, tls=tls.only(self._pem)))

    async def agent_ended(self) -> AgentEnd:
        return await self._local.agent_ended()  # the others' connections say it

    async def close(self, timeout: float) -> None:
        await self._local.close(timeout)
        await asyncio.to_thread(self._discovery.close)
