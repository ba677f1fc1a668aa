"""A job whose machines join by hand: `tfrun serve` on one, `tfrun join` on each of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tfrun.agent.settings import AgentSettings
from tfrun.cluster.address import Address
from tfrun.control.controller import Controller
from tfrun.control.placement import Site, Whereabouts, make_plan
from tfrun.control.protocol import tls
from tfrun.control.server import Desk
from tfrun.job.spec import JobSpec
from tfrun.launcher.backend import AgentEnd, Door, Job
from tfrun.launcher.join import token_file as token
from tfrun.launcher.join.enrolment import Enrolment, Machine, is_loopback
from tfrun.launcher.local.backend import LOOPBACK, LocalBackend
from tfrun.launcher.remote_agent import interfaces, own_address, own_name

EVERYWHERE = ("0.0.0.0", "::")
TOKEN_FILE = "token"  # in the run directory


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What `tfrun serve` was told.

    Attributes:
      host: the address that the control port listens on.
      port: the port; 0 is any free one.
      slots: how many workers this machine takes itself; may be 0.
      token_file: where the token is, or is to be; "" is in the run directory.
    """

    host: str = EVERYWHERE[0]
    port: int = 0
    slots: int = 1
    token_file: str = ""


def serve_job(
    spec: JobSpec,
    serving: Serving,
    certificate: tls.Certificate | None,
    say: Callable[[str], None],
) -> Job:
    """Returns the job.

    Args:
      spec: the job.
      serving: who gets in, and how.
      certificate: what the control port shows; None is without TLS.
      say: shows a person a line.

    Raises:
      UsageError: TFRUN-105 for files that cannot be used.
    """
    path = Path(serving.token_file or Path(spec.run_dir, TOKEN_FILE))
    secret = token.read_or_make(path)
    address = serving.host  # where others reach this machine
    if address in EVERYWHERE:
        address = own_address("", interfaces()) or LOOPBACK
    here = own_name("here")
    own = [Site(agent=here, host=address, slots=serving.slots)] if serving.slots else []
    left = max(0, spec.workers.high - serving.slots)
    places = [Site(agent=f"machine {i + 1}", host="", slots=1) for i in range(left)]
    known = Whereabouts(places=frozenset(place.agent for place in places))

    def desk(controller: Controller) -> Desk:
        mine = {here: Machine(identity="", slots=0)}  # nobody else gets its name
        return Enrolment(
            controller=controller, whereabouts=known, own_address=address, known=mine
        ).answer

    door = Door(certificate=certificate, token=secret, port=serving.port, desk=desk)
    backend = ServeBackend(
        whereabouts=known,
        listen_host=serving.host,
        pem=tls.pem_of(certificate),
        address=address,
        token_file=path,
        say=say,
        local=[LocalBackend(site) for site in own],
    )
    return Job(spec=spec, plan=make_plan(spec, [*own, *places]), backend=backend, door=door)


@dataclass(kw_only=True, eq=False)
class ServeBackend:
    """Starts this machine's own agent, if it takes workers; people start the others.

    Attributes:
      whereabouts: what is known of the machines.
      listen_host: the address that the control port listens on.
      pem: the certificate that is shown, in PEM; "" is without TLS.
      address: where others reach this machine.
      token_file: where the token is.
      say: shows a person a line.
      local: what starts the agent of this machine, or nothing.
    """

    whereabouts: Whereabouts
    listen_host: str
    pem: str
    address: str
    token_file: Path
    say: Callable[[str], None]
    local: list[LocalBackend]

    async def start(self, port: int, settings: AgentSettings) -> None:
        command = f"tfrun join {Address(host=self.address, port=port)} --token-file FILE"
        command += " --tls-ca CERTIFICATE" if self.pem else ""
        if self.whereabouts.places:
            self.say(f"on each other machine, with a copy of {self.token_file}: {command}")
        if not self.pem and not is_loopback(self.listen_host):
            self.say("without --tls-cert the token crosses the network unencrypted")
        for place in self.whereabouts.places:
            self.whereabouts.waiting[place] = f"run there: {command}"
        self.whereabouts.expected.update(self.whereabouts.places)
        scheme = "https" if self.pem else "http"
        host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(self.listen_host, self.listen_host)
        url = f"{scheme}://{Address(host=host, port=port)}"
        for local in self.local:
            await local.start(port, replace(settings, url=url, tls=tls.only(self.pem)))

    async def agent_ended(self) -> AgentEnd:
        for local in self.local:
            return await local.agent_ended()
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self, timeout: float) -> None:
        for local in self.local:
            await local.close(timeout)
        if not self.local:
            await asyncio.sleep(timeout / 2)  # the others read that the job is over
