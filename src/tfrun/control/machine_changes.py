"""Takes machines into a job, and out of it: they come, fall silent, are lost, or preempted."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

from tfrun.control import membership
from tfrun.control.machines import Away, Member, Members
from tfrun.control.placement import Plan, Whereabouts
from tfrun.control.protocol import messages
from tfrun.control.recovery import Recovery
from tfrun.control.rendezvous import Rendezvous
from tfrun.control.rounds import model
from tfrun.control.rounds.model import State
from tfrun.control.succession import Succession
from tfrun.control.timers import Timers
from tfrun.job.first_failure import Failure
from tfrun.job.spec import JobSpec
from tfrun.observe.events import EventLog


class Runner(Protocol):
    """What has the job's rounds: see `RoundRunner`."""

    spec: JobSpec
    plan: Plan
    round: model.Round
    recovery: Recovery
    members: Members
    known: Whereabouts
    events: EventLog
    rendezvous: Rendezvous
    succession: Succession
    timers: Timers

    def feed(self, event: model.Event) -> None: ...
    def reconsider_soon(self) -> None: ...
    def preempt_unless_enough_stay(self) -> None: ...


class MachineChanges:
    """Tells the job's round runner what becomes of machines."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def take_in(self, member: Member) -> None:
        """Gives one that is there, or there again, a place in this round or a later one."""
        runner = self._runner
        runner.rendezvous.came()
        runner.succession.machine_came()
        if runner.round.state is State.JOINING and member.agent in runner.round.agents:
            runner.feed(model.AgentJoined(agent=member.agent))
        else:
            runner.members.have_stand_by(member, runner.round.number)
        runner.reconsider_soon()

    def take_back(self, away: Away, now: float) -> None:
        """Takes in one that counted as lost, and was only silent: what it holds is good."""
        runner = self._runner
        runner.members.back(away.member, now)
        if away.holds is not None:
            holders = {**runner.recovery.holders, away.member.agent: away.holds}
            runner.recovery = replace(runner.recovery, holders=holders)
        self.take_in(away.member)

    def preempt(self, agent: str) -> None:
        """Its grace period begins; the whole job's, if too few machines would be left."""
        runner = self._runner
        if member := runner.rendezvous.preempted.preempted(agent):
            runner.timers.later(
                runner.spec.timeouts.preempt_grace, self._machine_grace_over, member
            )
        runner.preempt_unless_enough_stay()

    def _machine_grace_over(self, member: Member) -> None:
        runner = self._runner
        if runner.members.is_here(member) and not runner.round.preempting:
            self.lose(member.agent, "TFRUN-301", f"{member.agent} was preempted")

    def lose(
        self,
        agent: str,
        code: str,
        reason: str,
        detail: str = "",
        *,
        silent: bool = False,
        stays: bool = False,
    ) -> None:
        """An agent is gone for this round, and for the job unless its zygote alone has died.

        `silent`: it may be heard again. `stays`: only what its machine's memory holds is of use.
        """
        runner = self._runner
        member = runner.members.get(agent)
        if member is not None and code != "TFRUN-404" and not stays:
            runner.members.remove(member)
            if silent:
                holds = runner.recovery.holders.get(agent)
                begun = runner.round.number - (runner.round.state is State.JOINING)
                runner.members.away[agent] = Away(member=member, round=begun, holds=holds)
            else:
                member.send(messages.Shutdown(preempted=member.leaves, lost=True))
            runner.recovery = runner.recovery.lost(agent)
        runner.succession.lost(agent)
        failure = Failure(task=agent, time=time.time(), code=code, tail=reason)
        runner.events.add("agent_lost", agent=agent, code=code, reason=reason, detail=detail)
        if agent in runner.round.agents:
            verdict = runner.rendezvous.decide(runner.plan, runner.round.number, runner.recovery)
            enough = not isinstance(verdict, membership.GiveUp)
            spare = not stays and (enough or runner.succession.covers(runner.round, agent))
            runner.feed(model.AgentLost(agent=agent, failure=failure, spare=spare))

    def give_up(self, agents: frozenset[str]) -> None:
        """What runs there cannot be ended; where the others are too few, the job ends with them.

        Then the agents stay so long: their machines' memory may be what is saved.
        """
        runner = self._runner
        others = (runner.members.names - agents) | runner.known.expected
        stays = not membership.possible_workers(runner.spec, runner.plan, others)
        for agent in sorted(agents):
            reason = f"{agent} was given up: its workers cannot be ended, not even by SIGKILL"
            self.lose(agent, "TFRUN-301", reason, stays=stays)
