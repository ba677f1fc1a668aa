"""Preemption: what it means for the job when the system takes machines back. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tfrun.control.placement import Plan
from tfrun.control.recovery import possible_workers, recovers
from tfrun.control.rounds.events import Interrupt, Preempt
from tfrun.job.restart_policy import Reached
from tfrun.job.spec import JobSpec

# One request may come as several signals: from srun and from slurmstepd, to the group and to us,
# and to one machine after the other.
ONE_REQUEST_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """What is remembered of the signals that ask the job to end.

    Attributes:
      asked: when SIGTERM came to the launcher, in seconds; None before.
    """

    asked: float | None = None

    def signalled(self, name: str, now: float) -> tuple[Preempt | Interrupt | None, Preemption]:
        """Takes a signal to the launcher.

        Returns what the round is to be told, and what is remembered. The first SIGTERM wants the
        machine back; a second one, as any other signal, wants the job to end at once.

        Args:
          name: the signal's name.
          now: seconds.
        """
        if name != "SIGTERM":
            return Interrupt(signal=name), self
        if self.asked is None:
            return Preempt(), replace(self, asked=now)
        if now - self.asked < ONE_REQUEST_SECONDS:
            return None, self
        return Interrupt(signal=name), self


def goes_on_without(
    spec: JobSpec, plan: Plan, there: Collection[str], machines: Collection[str]
) -> bool:
    """True when the job may go on without the machines that are being preempted.

    Args:
      spec: the job.
      plan: the plan of the round that runs, or of the one before.
      there: the agents that are connected.
      machines: those that are being preempted.
    """
    rest = set(there) - set(machines)
    if spec.ps:  # nobody can leave without a part of the state, or of the cluster
        return False
    return recovers(spec, plan) and possible_workers(spec, plan, rest) > 0


def may_leave(
    machines: Collection[str],
    there: Collection[str],
    holders: Mapping[str, Reached],
    newest: Reached | None,
) -> frozenset[str]:
    """Returns the machines that the next round can do without: all, or none.

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
