"""Preemption of single machines: they leave one by one, and the job goes on without them."""

from __future__ import annotations

import time

from tfrun.control import preemption
from tfrun.control.machines import Member, Members
from tfrun.control.placement import Plan
from tfrun.control.recovery import Recovery
from tfrun.control.rounds.model import Round, State
from tfrun.job.spec import JobSpec

# After so many grace periods a machine that is there, or is there again, has been spared.
SPARED_AFTER = 2.0


class PreemptedMachines:
    """The machines that are being preempted, and since when."""

    def __init__(self, spec: JobSpec, members: Members) -> None:
        self._spec, self._members = spec, members
        self._since: dict[str, float] = {}

    def preempted(self, agent: str) -> Member | None:
        """Takes the news that a machine is being preempted; returns it if that is news."""
        member = self._members.get(agent)
        if member is None or member.leaves:
            return None
        member.leaves = True
        self._since[agent] = time.monotonic()
        return member

    @property
    def leaving(self) -> frozenset[str]:
        """The machines that are being preempted, and still here."""
        return self._members.leaving if self._since else frozenset()

    def leave_enough(self, plan: Plan, round: Round) -> bool:
        """True when the job may go on with the other machines.

        Those that are here; at the start also those on their way, as nothing is lost by waiting.
        """
        starts = round.state is State.JOINING and not round.number
        there = self._members.names | (round.agents if starts else frozenset())
        return preemption.goes_on_without(self._spec, plan, there, self._since)

    def excluded(self, recovery: Recovery) -> frozenset[str]:
        """The machines that the next round does not count on, also those that are gone already."""
        now, grace = time.monotonic(), self._spec.timeouts.preempt_grace
        leaving = self.leaving
        for agent in self._since.keys() - leaving:
            if now - self._since[agent] > SPARED_AFTER * grace:
                del self._since[agent]
        if not self._since:
            return frozenset()
        may = preemption.may_leave(
            leaving, self._members.names, recovery.holders, recovery.snapshot
        )
        return (frozenset(self._since) - leaving) | may

    def due(self, round: Round) -> frozenset[str]:
        """The machines that the running round is to be interrupted for."""
        first = min((self._since[agent] for agent in self.leaving), default=None)
        if first is None or time.monotonic() - first < preemption.ONE_REQUEST_SECONDS:
            return frozenset()  # others may follow
        return (self.leaving & round.agents) - round.regrouping
