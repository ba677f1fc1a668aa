"""Admits machines that join a job by hand, and gives them their names."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tfrun.control.controller import Controller
from tfrun.control.placement import Site, Whereabouts
from tfrun.control.protocol import messages, wire
from tfrun.job.spec import MAX_WORKERS
from tfrun.job.version import __version__

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that has been let in; `attempt` counts the earlier starts of its agent."""

    identity: str
    slots: int
    attempt: int = 0


def choose(
    name: str, machine: Machine, known: Mapping[str, Machine], here: frozenset[str]
) -> tuple[str, Machine]:
    """Returns under which name a machine takes part, and as which agent of that name.

    One that comes again keeps its name, another one gets its own.

    A machine that has crashed comes again with another identity; while the one of that name is
    there, it is another machine that is called the same.

    Args:
      name: what it calls itself.
      machine: it.
      known: those that were let in before, by agent.
      here: the agents that are connected.
    """
    for agent, before in known.items():
        same_name = agent == name and agent not in here and before.slots == machine.slots
        if before.identity == machine.identity or same_name:
            again = before.attempt + 1
            return agent, replace(before, identity=machine.identity, attempt=again)
    agent, number = name, 1
    while agent in known:
        number += 1
        agent = f"{name}-{number}"
    return agent, machine


@dataclass(kw_only=True, eq=False)
class Enrolment:
    """Answers machines that ask to join.

    Attributes:
      controller: the job's.
      whereabouts: what is known of the machines.
      own_address: where others reach this machine, for one that joins from here.
      known: those that were let in, by agent.
    """

    controller: Controller
    whereabouts: Whereabouts
    own_address: str
    known: dict[str, Machine] = field(default_factory=dict)

    def answer(self, message: wire.Message, remote: str) -> wire.Message:
        """Returns the answer to a message that came from the address `remote`."""
        if self.controller.runner.ended.is_set():
            return messages.Refused(code="TFRUN-301", reason="the job is over", over=True)
        match message:
            case messages.Enrol():
                return self._enrol(message, remote)
            case messages.CannotRun(agent=agent, reason=reason) if agent in self.known:
                self.whereabouts.waiting[agent] = reason[:500]
                return messages.Shutdown()
        return _refuse("TFRUN-302", "this is not a message of a machine that wants to join")

    def _enrol(self, message: messages.Enrol, remote: str) -> wire.Message:
        if message.version != __version__:
            there, here = message.version[:50], __version__
            return _refuse("TFRUN-305", f"it has tfrun {there}, the job has {here}")
        if not 1 <= message.slots <= MAX_WORKERS or not _NAME.fullmatch(message.name):
            return _refuse("TFRUN-302", "its name or its number of slots is not valid")
        asks = Machine(identity=message.identity, slots=message.slots)
        here = self.controller.runner.members.names
        agent, machine = choose(message.name, asks, self.known, here)
        self.known[agent] = machine
        address = self.own_address if is_loopback(remote) else _plain(remote)
        self.whereabouts.addresses[agent] = address
        self.whereabouts.waiting[agent] = "its agent is starting"
        self.whereabouts.expected.add(agent)
        if not machine.attempt:
            self.controller.runner.expect(Site(agent=agent, host=address, slots=message.slots))
        spec = self.controller.spec.to_json()
        return messages.Enrolled(agent=agent, attempt=machine.attempt, spec=spec)


def is_loopback(address: str) -> bool:
    """True for an address of the machine itself."""
    try:
        return ipaddress.ip_address(_plain(address)).is_loopback
    except ValueError:
        return False


def _plain(address: str) -> str:
    """Returns an IPv4 address that came to an IPv6 port (::ffff:10.0.0.1) as what it is."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _refuse(code: str, reason: str) -> messages.Refused:
    return messages.Refused(code=code, reason=reason, over=False)
