"""The machines of a job that are connected now, and what is remembered of those that were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tfrun.control import messages, wire
from tfrun.control.membership import StandingBy

Send = Callable[[wire.Message], None]


@dataclass(kw_only=True, eq=False)
class Member:
    """One connection of an agent.

    Attributes:
      agent: its name.
      send: sends it a message.
      joined: when it came.
      heard: when it last said anything.
      ready: since when it could start workers, as one that stands by.
      asked: how often it was asked to get ready to stand by, and has not answered yet.
      leaves: its machine is wanted back.
    """

    agent: str
    send: Send
    joined: float
    heard: float
    ready: float | None = None
    asked: int = 0
    leaves: bool = False


class Members:
    """Who is connected. All times are those of one clock, in seconds."""

    def __init__(self) -> None:
        self._here: dict[str, Member] = {}
        self._losses: Counter[str] = Counter()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._here)

    @property
    def leaving(self) -> frozenset[str]:
        """Those whose machines are wanted back."""
        return frozenset(name for name, member in self._here.items() if member.leaves)

    def get(self, agent: str) -> Member | None:
        return self._here.get(agent)

    def is_here(self, member: Member) -> bool:
        """False for a connection that is over, also when its agent has come back by another."""
        return self._here.get(member.agent) is member

    def add(self, agent: str, send: Send, now: float) -> Member:
        member = Member(agent=agent, send=send, joined=now, heard=now)
        self._here[agent] = member
        return member

    def remove(self, member: Member) -> None:
        del self._here[member.agent]
        self._losses[member.agent] += 1

    def silent(self, now: float, seconds: float) -> list[Member]:
        """Returns those that have said nothing for so long."""
        return [member for member in self._here.values() if now - member.heard >= seconds]

    def until_silent(self, now: float, seconds: float) -> float:
        """Returns in how many seconds one of them will have said nothing for `seconds`."""
        heard = min((member.heard for member in self._here.values()), default=now)
        return heard + seconds - now

    def broadcast(self, message: wire.Message) -> None:
        for member in self._here.values():
            member.send(message)

    def have_stand_by(self, member: Member, round_number: int) -> None:
        """Has a machine without tasks import TensorFlow, so that it can be taken in quickly."""
        member.asked += 1
        member.send(messages.Prepare(round=round_number, ports=0))

    def standing_by(self, busy: Collection[str], now: float) -> dict[str, StandingBy]:
        """Returns the agents that have no task.

        Args:
          busy: those that have.
          now: the time.
        """
        return {
            name: StandingBy(
                here=now - member.joined,
                ready=None if member.ready is None else now - member.ready,
                losses=self._losses[name],
            )
            for name, member in self._here.items()
            if name not in busy
        }
