"""Decides, with a clock, whether the connected machines begin a round, and of which size."""

from __future__ import annotations

import time

from tfrun.control import membership
from tfrun.control.machines import Members
from tfrun.control.placement import Plan, Whereabouts
from tfrun.job.spec import JobSpec

Verdict = membership.Start | membership.Wait | membership.GiveUp


class Rendezvous:
    """Waits for the machines of a round, and then for those of the next.

    Attributes:
      members: who is connected.
      since: when the round began to be formed.
    """

    def __init__(self, spec: JobSpec, known: Whereabouts) -> None:
        self.members = Members()
        self.since = time.monotonic()
        self._spec, self._known = spec, known
        self._never: set[str] = set()  # agents that ended before they had joined
        self._came: float | None = None  # when an agent last came to this round
        self._stepped: float | None = None  # when this round's first step was done

    def opens(self) -> None:
        """The next round is due."""
        self.since, self._came, self._stepped = time.monotonic(), None, None

    def came(self) -> None:
        """An agent has joined."""
        self._came = time.monotonic()

    def never_came(self, agent: str) -> None:
        """An agent's process has ended before it had joined."""
        self._never.add(agent)

    def stepped(self) -> None:
        """A worker of this round has done its first step."""
        self._stepped = self._stepped or time.monotonic()

    def decide(self, plan: Plan, number: int, without: frozenset[str] = frozenset()) -> Verdict:
        """Whether round `number` could start now; machines that are not ready only if they must.

        Args:
          plan: the plan of the round before, or the first one.
          number: the round's.
          without: the agents that leave.
        """
        now, timeouts = time.monotonic(), self._spec.timeouts
        busy, here = plan.agents, self.members.names - without
        others = self.members.standing_by(busy, now)
        ready = here & (busy | {name for name, other in others.items() if other.ready is not None})
        # At the start all are on their way, whether or not they can come back later.
        coming = set() if number else busy - self._known.joined - self._never
        expected = (self._known.expected | coming) - without
        verdict: Verdict = membership.GiveUp()
        for there in (ready, here) if ready != here else (here,):
            verdict = membership.decide(
                self._spec,
                plan,
                there,
                expected,
                waited=now - self.since,
                quiet=now - (self._came or 0.0),
                patience=timeouts.rejoin_timeout if number else timeouts.start_timeout,
            )
            if isinstance(verdict, membership.Start):
                break
        return verdict

    def growth(self, plan: Plan, without: frozenset[str] = frozenset()) -> Plan | None:
        """The larger plan that the running round is to be interrupted for; None for not now.

        Args:
          plan: the running round's.
          without: the agents that leave, or have left a moment ago.
        """
        if self._stepped is None:
            return None
        now = time.monotonic()
        others = self.members.standing_by(plan.agents | without, now)
        return membership.growth(self._spec, plan, others, stepped=now - self._stepped)
