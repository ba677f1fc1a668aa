"""What every way of starting agents has to offer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tfrun.control.plan import Plan, Whereabouts
from tfrun.job.spec import JobSpec


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
    """

    whereabouts: Whereabouts

    @property
    def listen_host(self) -> str:
        """The address that the control port listens on."""
        ...

    async def start(self, port: int, config: dict[str, Any]) -> None:
        """Starts the agents.

        Args:
          port: the control port on the launcher's side.
          config: what all agents are told: "token" and "spec".
        """
        ...

    async def agent_ended(self) -> AgentEnd:
        """Waits for the next agent's process to end; each is told of once."""
        ...

    async def close(self, timeout: float) -> None:
        """Waits for the agents to leave, ends those that do not, and all that they left."""
        ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the launcher runs: the specification, who does what, and how the agents start.

    `port` and `token` are set where agents have to know the control port and the secret beforehand;
    by default they are made up.
    """

    spec: JobSpec
    plan: Plan
    backend: Backend
    port: int = 0
    token: str = ""
