"""Preemption: what follows when the system takes machines back, all of them or one by one.

A machine's agent is asked to go, or the launcher, for the whole job. The job goes on without single
machines as long as enough are left; one that alone has the newest state passes it on first.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from tfrun.control.machines import Member, Members
from tfrun.control.membership import possible_workers, recovers
from tfrun.control.placement import Plan
from tfrun.control.recovery import Recovery
from tfrun.control.rounds.model import Interrupt, Preempt, Round, State
from tfrun.job.restart_policy import Reached
from tfrun.job.spec import JobSpec

# One request may come as several signals: from srun and from slurmstepd, to the group and to us,
# and to one machine after the other.
ONE_REQUEST_SECONDS = 1.0
# After so many grace periods a machine that is there, or is there again, has been spared.
SPARED_AFTER = 2.0


def asked_to_end(signal: str, since: float | None) -> Preempt | Interrupt | None:
    """Returns what a round is to be told of a signal to the launcher. Pure.

    The first SIGTERM wants the machine back; a second one, as any other signal, wants the job to
    end at once.

    Args:
      signal: its name.
      since: how many seconds ago the first SIGTERM came; None before.
    """
    if signal != "SIGTERM":
        return Interrupt(signal=signal)
    if since is None:
        return Preempt()
    return Interrupt(signal=signal) if since >= ONE_REQUEST_SECONDS else None


def goes_on_without(
    spec: JobSpec, plan: Plan, there: Collection[str], machines: Collection[str]
) -> bool:
    """True when the job may go on without the machines that are being preempted. Pure.

    Args:
      spec: the job.
      plan: the plan of the round that runs, or of the one before.
      there: the agents that are connected.
      machines: those that are being preempted.
    """
    if spec.ps:  # nobody can leave without a part of the state, or of the cluster
        return False
    return recovers(spec, plan) and possible_workers(spec, plan, set(there) - set(machines)) > 0


def may_leave(
    machines: Collection[str],
    there: Collection[str],
    holders: Mapping[str, Reached],
    newest: Reached | None,
) -> frozenset[str]:
    """Returns the machines that the next round can do without: all, or none. Pure.

    None as long as nobody else has the newest state: they pass it on in the next round first.

    Args:
      machines: those that are being preempted.
      there: the agents that are connected.
      holders: the newest state in the memory of each machine.
      newest: the newest state in anybody's; None while there is none.
    """
    others = set(there) - set(machines)
    if newest is None or any(holders.get(agent) == newest for agent in others):
        return frozenset(machines)
    return frozenset()


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
        return goes_on_without(self._spec, plan, there, self._since)

    def excluded(self, recovery: Recovery) -> frozenset[str]:
        """The machines that the next round does not count on, also those that are gone already."""
        now, grace = time.monotonic(), self._spec.timeouts.preempt_grace
        leaving = self.leaving
        for agent in self._since.keys() - leaving:
            if now - self._since[agent] > SPARED_AFTER * grace:
                del self._since[agent]
        if not self._since:
            return frozenset()
        may = may_leave(leaving, self._members.names, recovery.holders, recovery.snapshot)
        return (frozenset(self._since) - leaving) | may

    def due(self, round: Round) -> frozenset[str]:
        """The machines that the running round is to be interrupted for."""
        first = min((self._since[agent] for agent in self.leaving), default=None)
        if first is None or time.monotonic() - first < ONE_REQUEST_SECONDS:
            return frozenset()  # others may follow
        return (self.leaving & round.agents) - round.regrouping
