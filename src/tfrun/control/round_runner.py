"""Runs the job's rounds: carries out what one asks for, and opens the next."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from tfrun.control import membership, recovery
from tfrun.control.agent_orders import AgentOrders
from tfrun.control.in_place import InPlace
from tfrun.control.machine_changes import MachineChanges
from tfrun.control.placement import Plan, Site, Whereabouts
from tfrun.control.protocol import messages, wire
from tfrun.control.rendezvous import Rendezvous
from tfrun.control.rounds import model, state_machine, staying, stopping
from tfrun.control.rounds.after_failure import worth_saving
from tfrun.control.rounds.model import State
from tfrun.control.succession import Succession
from tfrun.control.timers import Timers
from tfrun.control.view import View
from tfrun.job import reports
from tfrun.job.restart_policy import Restarts, cause_of
from tfrun.job.spec import JobSpec
from tfrun.observe.events import EventLog
from tfrun.observe.exception_summary import essence


class RoundRunner:
    """Owns the job's rounds, one after the other.

    Attributes:
      plan: who runs what in this round.
      round: the round.
      recovery: what is remembered of the rounds before.
      replaced: how many tasks were started again in the midst of a round.
      gave_up: the last failure would have been recovered from, had it not come so often.
      ended: set when nothing of the job runs any more.
      members: who is connected.
      known: what is known of the machines.
      succession: the job's successors.
      machines: takes machines in, and lets them go.
      rendezvous: waits for those of the next round.
      timers: the job's.
    """

    def __init__(
        self,
        spec: JobSpec,
        plan: Plan,
        events: EventLog,
        view: View,
        known: Whereabouts,
        window: tuple[int, int] | None = None,
    ) -> None:
        self.spec, self.plan, self.events, self.view, self.known = spec, plan, events, view, known
        self.ended = asyncio.Event()
        self.recovery = recovery.Recovery(restarts=Restarts(limit=spec.max_restarts))
        self.replaced, self.gave_up, self._started = 0, False, time.monotonic()
        self.round = membership.new_round(spec, plan, 0)
        self.rendezvous = Rendezvous(spec, known)
        self.members, self._preempted = self.rendezvous.members, self.rendezvous.preempted
        self._orders = AgentOrders(spec=spec, members=self.members, known=known, window=window)
        self._raised: dict[str, reports.Error] = {}  # what tasks aside have reported
        self.succession = Succession(spec, self.members, self._orders, events, view)
        self._next: InPlace | None = None  # the round in place that is about to begin, or runs
        self.timers = Timers()
        self.machines = MachineChanges(self)
        self._reconsidering: asyncio.Handle | None = None

    # --- time -------------------------------------------------------------------------------

    @property
    def waited(self) -> float:
        """For how many seconds the round has been forming."""
        return time.monotonic() - self.rendezvous.since

    def wait_for_all(self) -> None:
        """Begins to wait for the round's machines."""
        self.timers.set(State.JOINING, self.spec.timeouts.join_timeout, self._join_timed_out)

    def _join_timed_out(self) -> None:
        if self.round.state in (State.JOINING, State.PREPARING):
            failure = membership.not_formed(self.round, self.known.waiting, time.time())
            self.feed(model.TimedOut(state=self.round.state, failure=failure))

    def expect(self, site: Site) -> None:
        """Takes note of a machine that is going to join, and that no plan knows yet."""
        if self.round.number == 0 and self.round.state is State.JOINING:
            self.plan = membership.with_site(self.spec, self.plan, site, self.known.places)
            self.round = replace(self.round, tasks=self.plan.planned, joined=self.members.names)
        else:
            self.plan = replace(self.plan, sites=(*self.plan.sites, site))

    def reconsider_soon(self) -> None:
        """Once for all machines that come in the same moment."""
        if self._reconsidering is None:
            self._reconsidering = asyncio.get_running_loop().call_soon(self.reconsider)

    # --- a round ----------------------------------------------------------------------------

    def reported(
        self, agent: str, task: str, when: float, report: reports.Report, port: int = 0
    ) -> None:
        """Takes a worker's report: for the round, and for what is remembered of it."""
        self.recovery = self.recovery.reported(report, agent)
        self.succession.reported(task, report, self.round)
        if isinstance(report, reports.Error) and self.round.is_aside(task):
            self._raised[task] = report
        self.feed(model.Reported(task=task, time=when, report=report, port=port))
        if isinstance(report, reports.FirstStep):
            self.rendezvous.stepped()
            self._recovered()
            self.reconsider_soon()
        own = isinstance(report, reports.CheckpointSaved | reports.CheckpointRestored)
        if own and not self.recovery.catches_up:  # else the first step that we know tells more
            self._recovered()

    def feed(self, event: model.Event) -> None:
        """Tells the round of an event, and does what follows."""
        self._take(state_machine.step(self.round, event), self.round.state)

    def _take(self, result: model.Result, before: State) -> None:
        self.round, asked = result
        if self.round.state is not before:
            self.events.add("round", number=self.round.number, state=self.round.state.value)
            self._entered(self.round.state, before)
        for action in asked:
            self._do(action)
        if self.round.state is State.ENDED and not self.ended.is_set():
            self._round_ended()

    def _entered(self, state: State, before: State) -> None:
        if state in (State.LEAVING, State.STOPPING):
            # What the chief says of its peers' end, or of Ctrl-C, is no news: it is in its log.
            cause = self.round.root_cause
            if cause is None or cause.task != self.plan.chief:
                self.view.mute_errors()
        if state is State.LEAVING or (self.round.recoverable and before is not State.LEAVING):
            self.recovery = self.recovery.noticed(time.monotonic())
        if state is State.RELEASING:
            self._recovered()  # there was no step left to do
        if state in (State.RELEASING, State.STOPPING, State.SAVING):
            self.succession.stop()

    def _do(self, action: model.Action) -> None:
        match action:
            case model.PrepareAgents():
                self._orders.prepare(self.plan, self.round.number)
            case model.StartTasks():
                # With a snapshot to go on from, what scripts print again on the way is no news.
                self._started, muted = time.monotonic(), self.recovery.catches_up
                if self._next:
                    self._orders.go_on_in_place(self.plan, self.round, self._next.takes)
                else:
                    self._orders.start(self.plan, self.round, muted=muted)
                self.view.next_round()
                if not muted and not self.recovery.saves_itself:  # which will tell where it goes on
                    self._tell()
            case model.ReplaceTask(task=task, failure=failure):
                how = recovery.describe(failure)
                self.replaced += 1
                self.events.add("failure", task=task, how=how, cause="infrastructure")
                self.events.add("replaced", task=task, round=self.round.number)
                self.view.notice(f"{how}; started again at its address")
                self._orders.start(self.plan, self.round, only=task)
            case model.GoOnWithout(failure=failure):
                how = recovery.describe(failure)
                if raised := self._raised.get(failure.task):
                    name, said = failure.task.replace(":", " "), essence(raised)[0]
                    how = f"{name} raised {said.rstrip('.')}"
                self.events.add("failure", task=failure.task, how=how, cause="script")
                self.view.notice(f"{how}; the job goes on without it")
            case model.DecideStay():
                asyncio.get_running_loop().call_soon(self._decide_stay, self.round.number)
            case model.GiveUpAgents(agents=agents):
                asyncio.get_running_loop().call_soon(self.machines.give_up, agents)
            case model.SetTimer(state=state, seconds=seconds):
                event = model.TimedOut(state=state)
                self.timers.set(state, seconds, lambda: self.feed(event))
            case model.SetGrace(seconds=seconds):
                self.timers.later(seconds, self.feed, model.GraceOver())
            case model.AwaitEnds(seconds=seconds):
                self.timers.set("ends", seconds, lambda: self.feed(model.EndsAwaited()))
            case messages.SaveMemory():
                if not self._orders.save_memory(self.plan, action, self.recovery):
                    problem = "the machines that had the state in memory are gone"
                    none = messages.MemorySaved(round=action.round, step=-1, problem=problem)
                    asyncio.get_running_loop().call_soon(self.feed, none)
            case wire.Message():
                self.members.broadcast(action)

    # --- from round to round ----------------------------------------------------------------

    def _decide_stay(self, number: int) -> None:
        """All are out of the round, and some wait: in place, or afresh."""
        round, leaving = self.round, self._preempted.leaving
        if round.number != number or round.state is not State.LEAVING:
            return
        ran = time.monotonic() - self._started
        may = round.has_regrouped or self.recovery.after(round, leaving, seconds=ran) is not None
        may = may and (not leaving or self._preempted.leave_enough(self.plan, round))
        verdict = self.rendezvous.decide(self.plan, number + 1, self.recovery)
        more = not isinstance(verdict, membership.GiveUp)
        call = (self.recovery.stayed or (self.recovery.call,))[0]
        given = self.plan, round, leaving
        self._next = self.succession.next_round(*given, call=call, more=more) if may else None
        self.feed(model.StayDecided(in_place=self._next is not None))

    def _new_round(self, number: int) -> model.Round:
        """Returns a round of fresh processes."""
        self._next, self.recovery = None, replace(self.recovery, stayed=None)
        self.succession.begins(None, number)
        resumes, preempting = self.recovery.snapshot is not None, self.round.preempting
        return membership.new_round(
            self.spec, self.plan, number, resumes=resumes, preempting=preempting
        )

    def _round_ended(self) -> None:
        if self.round.in_memory:
            return self._end()
        grown, number = self.round.has_regrouped, self.round.number + 1
        for failure in () if grown else recovery.first_failures(self.round):
            how, cause = recovery.describe(failure), cause_of(failure).value
            self.events.add("failure", task=failure.task, how=how, cause=cause)
        if not self.round.recoverable:
            return self._give_up() if worth_saving(self.round) else self._end()
        leaving = self._preempted.leaving
        if not grown:
            ran = time.monotonic() - self._started
            remembered = self.recovery.after(self.round, leaving, seconds=ran)
            if remembered is None:
                self.gave_up = True
                return self._give_up()
            self.recovery = remembered
        self.timers.round_ends()
        self.rendezvous.opens()
        if leaving and not self._preempted.leave_enough(self.plan, self.round):
            self.round = replace(self.round, preempting=True)
        if self.round.preempting:
            return self._begin(number, self.plan)
        if self.round.in_place:
            return self._begin_in_place(number, leaving, grown=grown)
        verdict = self.rendezvous.decide(self.plan, number, self.recovery)
        if grown and self.round.one_each:
            self._orders.one_replica_each, why = True, self.round.one_each
            self.recovery = self.recovery.after_no_failure
            self.events.add("one_replica_each", round=self.round.number, reason=why)
            self.view.notice(recovery.one_replica_each(why))
        elif grown:
            plan = verdict if isinstance(verdict, Plan) else self.plan
            joined, why = plan.agents - self.round.agents, self.succession.short
            self.recovery = self.recovery.after_regroup(joined, leaving, why=why)
        match verdict:
            case membership.GiveUp():
                self._give_up()
            case Plan():
                self._let_go(leaving)
                self._begin(number, verdict)
            case membership.Wait(missing=missing, is_enough=is_enough):
                self._wait(number, missing, is_enough=is_enough)

    def _let_go(self, leaving: frozenset[str]) -> list[str]:
        """Dismisses those of the preempted machines that nobody needs, and returns their names."""
        gone = sorted(leaving & self._preempted.excluded(self.recovery))
        for agent in gone:
            member = self.members.get(agent)
            assert member is not None
            self.events.add("let_go", agent=agent)
            self.members.remove(member)
            self.succession.lost(agent)
            self.recovery = self.recovery.lost(agent)
            member.send(messages.Shutdown(preempted=True))
        return gone

    def _give_up(self) -> None:
        """No round can follow: what the machines' memory holds is kept at least."""
        if self.recovery.holder(self.members.names) is None:
            return self._end()
        self.timers.round_ends()
        self._take(stopping.save_memory(self.round), State.ENDED)

    def _wait(self, number: int, missing: tuple[str, ...], *, is_enough: bool) -> None:
        """The next round is due, and machines are missing that the job waits for."""
        timeouts, names = self.spec.timeouts, membership.listed(missing)
        seconds = timeouts.rejoin_timeout if is_enough else timeouts.join_timeout
        how = self.recovery.how[-1] if self.recovery.how else "machines are missing"
        self.view.notice(f"{how}; waiting for {names}, at most {seconds:.0f} s")
        self.events.add("waiting", round=number, agents=list(missing), seconds=seconds)
        new = self._new_round(number)
        round = replace(new, joined=self.members.names & new.agents)
        self.wait_for_all()
        self._take((round, ()), State.ENDED)

    def _begin(self, number: int, plan: Plan) -> None:
        before, self.plan = self.plan, plan
        if number and len(plan.tasks) != len(before.tasks):
            self.events.add("resized", round=number, **membership.change(before, plan))
        self.wait_for_all()
        state = self.round.state
        self._take(state_machine.begin(self._new_round(number), self.members.names), state)

    def _begin_in_place(self, number: int, leaving: frozenset[str], *, grown: bool) -> None:
        chosen, before = self._next, self.plan
        assert chosen is not None
        self.plan = chosen.plan
        if grown:
            joined = chosen.plan.agents - before.agents
            taken = len(chosen.successors([one.name for one in self.succession.waiting]))
            self.recovery = self.recovery.after_regroup(joined, leaving, taken=taken)
        self.recovery = self.recovery.goes_on_in_place
        if len(self.plan.tasks) != len(before.tasks):
            self.events.add("resized", round=number, **membership.change(before, self.plan))
        round = membership.new_round(self.spec, self.plan, number)
        state, round = self.round.state, replace(round, ports=chosen.ports)
        self._take(staying.begin_in_place(round), state)
        self.succession.begins(chosen.takes, number)
        self._let_go(leaving)

    def reconsider(self) -> None:
        """A round that waits may start with other machines; one that runs may have more."""
        self._reconsidering = None
        if self.ended.is_set():
            return
        self.preempt_unless_enough_stay()
        if idle := self._preempted.leaving - self.round.agents:
            self._let_go(idle)
        if self.round.state is State.JOINING:
            self._reconsider_waiting()
        serves, leaving = self.succession.serves(self.plan), self._preempted.leaving
        event = self.rendezvous.change(
            self.plan, self.round, self.recovery, by_successors=serves
        ) or self.succession.consider(self.plan, self.round, self.recovery, leaving)
        if event:
            self.events.add("regroup", round=self.round.number, agents=sorted(event.agents))
            self.feed(event)

    def _reconsider_waiting(self) -> None:
        number, leaving = self.round.number, self._preempted.leaving
        verdict = self.rendezvous.decide(self.plan, number, self.recovery)
        if isinstance(verdict, Plan):
            for agent in self._let_go(leaving):
                self.view.notice(f"{agent} is being preempted, so the job goes on without it")
            self._begin(number, verdict)
        elif leaving - self._preempted.excluded(self.recovery):
            # Nobody else has the state, and no round comes to pass it on.
            self.feed(model.Preempt())

    def preempt_unless_enough_stay(self) -> None:
        if self._preempted.leaving and not self._preempted.leave_enough(self.plan, self.round):
            self.feed(model.Preempt())

    # --- what a person is told --------------------------------------------------------------

    def _recovered(self) -> None:
        """The first step of a round: what was lost is made up for."""
        since, state = self.recovery.since, self.round.state
        if since is None or state not in (State.RUNNING, State.RELEASING):
            return  # a step that was made before it failed once more
        self._tell()
        record = self.recovery.record(time.monotonic() - since)
        where = {"round": self.round.number, "in_place": self.recovery.in_place}
        self.events.add(self.recovery.kind, **where, **record)
        self.recovery = self.recovery.mended

    def _tell(self) -> None:
        if self.recovery.since is not None:
            seconds = time.monotonic() - self.recovery.since
            if text := self.recovery.sentence(self.plan.workers, seconds):
                self.view.notice(text)
            self.recovery = self.recovery.told

    def _end(self) -> None:
        self.timers.job_ends()
        self.members.broadcast(messages.Shutdown(preempted=self.round.preempted))
        self.ended.set()
