"""The interface that every way of starting agents has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tfrun.agent.settings import AgentSettings
from tfrun.control.placement import Plan, Whereabouts
from tfrun.job.spec import JobSpec

if TYPE_CHECKING:
    from tfrun.control.controller import Controller
    from tfrun.control.protocol.tls import Certificate
    from tfrun.control.server import Desk


@dataclass(frozen=True, kw_only=True)
class AgentEnd:
    """An agent that is not there any more, or never will be.

    Attributes:
      agent: its name.
      how: what happened, as one clause.
      code: the error's code if it had not joined yet.
    """

    agent: str
    how: str
    code: str = "TFRUN-301"


class Backend(Protocol):
    """Starts one agent on each of its machines and ends it again.

    A backend that can starts an agent that has ended again, as a new process. For as long as it
    tries, the agent's name is in `whereabouts.expected`.

    Attributes:
      whereabouts: what it knows of the machines; it keeps that up to date.
      listen_host: the address that the control port listens on.
    """

    whereabouts: Whereabouts
    listen_host: str

    async def start(self, port: int, settings: AgentSettings) -> None:
        """Starts the agents.

        Args:
          port: the control port on the launcher's side.
          settings: what all agents are told: token and job.
        """
        ...

    async def agent_ended(self) -> AgentEnd:
        """Waits for the next agent's process to end; each is told of once."""
        ...

    async def close(self, timeout: float) -> None:
        """Waits for the agents to leave, ends those that do not, and all that they left."""
        ...


@dataclass(frozen=True, kw_only=True)
class Door:
    """Who gets in at the control port, and how.

    The port and the token are set where agents have to know them beforehand.

    Attributes:
      token: the job's secret; "" makes a new one.
      port: the port; 0 is any free one.
      certificate: what the port shows; None is without TLS.
      desk: makes what answers machines that join by hand, once there is a controller.
    """

    token: str = ""
    port: int = 0
    certificate: Certificate | None = None
    desk: Callable[[Controller], Desk] | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the launcher runs: the specification, who does what, and how the agents start.

    Attributes:
      health: a port on which it says that it lives; 0 is none.
      requeued: how often a scheduler has run it again; None where nobody does when a machine is
        lost that it needs.
    """

    spec: JobSpec
    plan: Plan
    backend: Backend
    door: Door = field(default_factory=Door)
    health: int = 0
    requeued: int | None = None
