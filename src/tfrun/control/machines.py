"""The machines of a job that are connected now, and what is remembered of those that were.

One that was only silent may be heard again: it is `away` meanwhile, with what its memory holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from tfrun.control.membership import StandingBy
from tfrun.control.protocol import messages, wire
from tfrun.job.restart_policy import Reached

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
      leaves: its machine is being preempted.
    """

    agent: str
    send: Send
    joined: float
    heard: float
    ready: float | None = None
    asked: int = 0
    leaves: bool = False


@dataclass(frozen=True, kw_only=True)
class Away:
    """A machine that counts as lost, and whose connection has not ended.

    Attributes:
      member: it.
      round: the number of the round that went on without it.
      holds: the newest state in its memory.
    """

    member: Member
    round: int
    holds: Reached | None


class Members:
    """Who is connected. All times are those of one clock, in seconds.

    Attributes:
      away: those that are silent, by name.
    """

    def __init__(self) -> None:
        self._here: dict[str, Member] = {}
        self.away: dict[str, Away] = {}
        self._losses: Counter[str] = Counter()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._here)

    @property
    def leaving(self) -> frozenset[str]:
        """Those whose machines are being preempted."""
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

    def back(self, member: Member, now: float) -> None:
        """Takes one in again that was away."""
        del self.away[member.agent]
        member.joined, member.ready, member.asked = now, None, 0
        self._here[member.agent] = member

    def heard(self) -> dict[str, float]:
        """Returns when each was last heard."""
        return {name: member.heard for name, member in self._here.items()}

    def until_silent(self, now: float, seconds: float) -> float:
        """Returns in how many seconds another one will have said nothing for `seconds`."""
        times = (m.heard for m in self._here.values() if now - m.heard < seconds)
        return min(times, default=now) + seconds - now

    def send(self, agent: str, message: wire.Message) -> None:
        """Sends a message to an agent, if that is here."""
        if member := self._here.get(agent):
            member.send(message)

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
