"""Decides, with a clock, whether the connected machines begin a round, and of which size."""

from __future__ import annotations

import time

from tfrun.control import membership
from tfrun.control.machines import Members
from tfrun.control.placement import Plan, Whereabouts
from tfrun.control.preempted_machines import PreemptedMachines
from tfrun.control.recovery import Recovery
from tfrun.control.rounds.model import ChangeMachines, Round, State
from tfrun.job.spec import JobSpec

STEP_PART = 0.5  # of a preempted machine's grace period that the end of a step is waited for


class Rendezvous:
    """Waits for the machines of a round, and then for those of the next.

    Attributes:
      members: who is connected.
      preempted: which of them are being preempted.
      since: when the round began to be formed.
    """

    def __init__(self, spec: JobSpec, known: Whereabouts) -> None:
        self.members = Members()
        self.preempted = PreemptedMachines(spec, self.members)
        self.since = time.monotonic()
        self._spec, self._known = spec, known
        self._came: float | None = None  # when an agent last came to this round
        self._stepped: float | None = None  # when this round's first step was done

    def opens(self) -> None:
        """The next round is due."""
        self.since, self._came, self._stepped = time.monotonic(), None, None

    def came(self) -> None:
        """An agent has joined."""
        self._came = time.monotonic()

    def stepped(self) -> None:
        """A worker of this round has done its first step."""
        self._stepped = self._stepped or time.monotonic()

    def decide(self, plan: Plan, number: int, recovery: Recovery) -> membership.Verdict:
        """Whether round `number` could start now; machines that are not ready only if they must.

        Args:
          plan: the plan of the round before, or the first one.
          number: the round's.
          recovery: who holds which state.
        """
        now, timeouts = time.monotonic(), self._spec.timeouts
        without = self.preempted.excluded(recovery)
        busy, here = plan.agents, self.members.names - without
        others = self.members.standing_by(busy, now)
        ready = here & (busy | {name for name, other in others.items() if other.ready is not None})
        # At the start all are on their way, whether or not they can come back later.
        coming = set() if number else busy - self._known.joined - self._known.failed
        expected = (self._known.expected | coming) - without
        verdict: membership.Verdict = membership.GiveUp()
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
            if isinstance(verdict, Plan):
                break
        return verdict

    def change(
        self, plan: Plan, round: Round, recovery: Recovery, *, by_successors: bool = False
    ) -> ChangeMachines | None:
        """Returns for which machines the round is to be interrupted now; None for none.

        Those that are being preempted come first; then those that make the job larger, unless
        successors do.
        """
        if round.state is not State.RUNNING or round.preempting:
            return None
        if leaving := self.preempted.due(round):
            within = self._spec.timeouts.preempt_grace * STEP_PART
            return ChangeMachines(agents=leaving, within=within)
        if round.regrouping or self._stepped is None or by_successors:
            return None
        now, without = time.monotonic(), self.preempted.excluded(recovery)
        others = self.members.standing_by(plan.agents | without, now)
        larger = membership.growth(self._spec, plan, others, stepped=now - self._stepped)
        new = larger.agents - round.agents if larger else frozenset()
        return ChangeMachines(agents=new) if new else None
