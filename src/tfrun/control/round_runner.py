"""Carries out what the job's rounds ask for, and opens the next round."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

from tfrun.control import membership, preemption, recovery
from tfrun.control.agent_orders import order_of
from tfrun.control.placement import Plan, Whereabouts, start_messages
from tfrun.control.preempted_machines import PreemptedMachines
from tfrun.control.protocol import messages, wire
from tfrun.control.rendezvous import Rendezvous, Verdict
from tfrun.control.rounds import actions, ending, events, model, state_machine
from tfrun.control.rounds.after_failure import worth_saving
from tfrun.control.rounds.model import State
from tfrun.control.rounds.timers import Timers
from tfrun.control.view import View
from tfrun.job.doubts import Doubts
from tfrun.job.reports import Error
from tfrun.job.restart_policy import Restarts, cause_of
from tfrun.job.spec import JobSpec
from tfrun.observe.events import EventLog
from tfrun.observe.exception_summary import essence
from tfrun.observe.monitor import Monitor

GOES_ON = (State.RUNNING, State.RELEASING)
DEPARTURE_PART = 0.5  # of a machine's grace period that the end of a step is waited for


class RoundRunner:
    """Owns the job's rounds, one after the other.

    Attributes:
      plan: who runs what in this round.
      round: the round.
      recovery: what is remembered of the rounds before.
      replaced: how many tasks were started again in the midst of a round.
      doubts: what the workers do that is probably not meant.
      gave_up: the last failure would have been recovered from, had it not come so often.
      differing: by machine, in what its versions are not those of the first one.
      untested: which programs are newer than those that tfrun was tested with.
      ended: set when nothing of the job runs any more.
    """

    def __init__(
        self,
        spec: JobSpec,
        plan: Plan,
        events: EventLog,
        view: View,
        *,
        window: tuple[int, int] | None = None,
        whereabouts: Whereabouts | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        self.spec, self.plan, self.events, self.view = spec, plan, events, view
        self._monitor = monitor
        self._stacks: dict[str, str] = {}
        self._raised: dict[str, Error] = {}  # what tasks aside have reported
        self._first: messages.Hello | None = None  # with which others are compared
        self.differing: dict[str, str] = {}
        self.untested = ""
        self.ended = asyncio.Event()
        self.recovery = recovery.Recovery(restarts=Restarts(limit=spec.max_restarts))
        self.replaced, self.gave_up, self.doubts = 0, False, Doubts()
        self._preemption = preemption.Preemption()
        self.round = recovery.new_round(spec, plan, 0)
        self._window = window
        self._known = whereabouts or Whereabouts()
        self._rendezvous = Rendezvous(spec, self._known)
        self._members = self._rendezvous.members
        self._departures = PreemptedMachines(spec, self._members)
        self._saver, self._started = "", time.monotonic()
        self._timers = Timers()
        self._closed: list[asyncio.TimerHandle] = []
        self._reconsidering: asyncio.Handle | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def waited(self) -> float:
        """For how many seconds the round has been forming."""
        return time.monotonic() - self._rendezvous.since

    # --- time -------------------------------------------------------------------------------

    def _wait_for_all(self) -> None:
        self._timers.set(State.JOINING, self.spec.timeouts.join_timeout, self._join_timed_out)

    def _join_timed_out(self) -> None:
        if self.round.state not in (State.JOINING, State.PREPARING):
            return
        failure = membership.not_formed(self.round, self._known.waiting, time.time())
        self._feed(events.TimedOut(state=self.round.state, failure=failure))

    # --- what goes out ----------------------------------------------------------------------

    def _feed(self, event: events.Event) -> None:
        before = self.round.state
        if isinstance(event, events.TaskRaised) and self.round.is_aside(event.task):
            self._raised[event.task] = event.error
        self._take(state_machine.step(self.round, event), before)

    def _take(self, result: state_machine.Result, before: State) -> None:
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

    def _do(self, action: actions.Action) -> None:
        number = self.round.number
        match action:
            case actions.PrepareAgents():
                for agent in self.round.agents:
                    ports, stated = self.plan.ports_of(agent), self.plan.stated_ports_of(agent)
                    prepare = messages.Prepare(round=number, ports=ports, stated=stated)
                    self._send(agent, prepare)
            case actions.StartTasks():
                self._start_tasks()
            case actions.ReplaceTask(task=task, failure=failure):
                self._replace_task(task, recovery.describe(failure))
            case actions.GoOnWithout(failure=failure):
                how = recovery.describe(failure)
                if raised := self._raised.get(failure.task):
                    name, said = failure.task.replace(":", " "), essence(raised)[0]
                    how = f"{name} raised {said.rstrip('.')}"
                self.events.add("failure", task=failure.task, how=how, cause="script")
                self.view.notice(f"{how}; the job goes on without it")
            case actions.SetTimer(state=state, seconds=seconds):
                event = events.TimedOut(state=state)
                self._timers.set(state, seconds, lambda: self._feed(event))
            case actions.SetGrace(seconds=seconds):
                loop = asyncio.get_running_loop()
                self._closed.append(loop.call_later(seconds, self._feed, events.GraceOver()))
            case actions.AwaitEnds(seconds=seconds):
                self._timers.set("ends", seconds, lambda: self._feed(events.EndsAwaited()))
            case actions.SaveMemory():
                self._save_memory()
            case _ if order := order_of(action, number):
                self._members.broadcast(order)

    def _save_memory(self) -> None:
        """Asks one machine of those with the newest state; another one only if that is lost."""
        if self._saver in self._members.names:
            return
        chief = next(task.agent for task in self.plan.planned if task.name == self.plan.chief)
        self._saver = self.recovery.holder(self._members.names, rather=chief) or ""
        if self._saver:
            self._send(self._saver, messages.SaveMemory(round=self.round.number))
        else:
            event = events.JobNotSaved(reason="the machines that had it in memory are gone")
            asyncio.get_running_loop().call_soon(self._feed, event)

    def _start_tasks(self) -> None:
        # With a snapshot to go on from, what the scripts print again on the way there is no news.
        self._started = time.monotonic()
        muted = self.recovery.catches_up
        tasks = self._tasks_by_agent(muted=muted)
        self.view.next_round()
        if not muted and not self.recovery.saves_itself:  # which will tell where it goes on
            self._tell()
        for agent in self.round.agents:
            message = messages.StartRound(round=self.round.number, tasks=tasks[agent])
            self._send(agent, message)

    def _replace_task(self, name: str, how: str) -> None:
        self.replaced += 1
        self.events.add("failure", task=name, how=how, cause="infrastructure")
        self.events.add("replaced", task=name, round=self.round.number)
        self.view.notice(f"{how}; started again at its address")
        (agent,) = (task.agent for task in self.round.tasks if task.name == name)
        tasks = [task for task in self._tasks_by_agent()[agent] if task["task"] == name]
        self._send(agent, messages.StartRound(round=self.round.number, tasks=tasks))

    def _tasks_by_agent(self, *, muted: bool = False) -> dict[str, list[dict[str, Any]]]:
        return start_messages(
            self.plan,
            self.spec,
            self.round.number,
            self.round.ports,
            self._window,
            self._known.addresses,
            muted=muted,
        )

    def _send(self, agent: str, message: wire.Message) -> None:
        if member := self._members.get(agent):
            member.send(message)

    # --- from round to round ----------------------------------------------------------------

    def _new_round(self, number: int) -> model.Round:
        more = {
            "resumes": self.recovery.snapshot is not None,
            "preempting": self.round.preempting,
        }
        return recovery.new_round(self.spec, self.plan, number, **more)

    def _round_ended(self) -> None:
        if self.round.in_memory:
            return self._end()
        grown, number = self.round.has_regrouped, self.round.number + 1
        for failure in () if grown else recovery.first_failures(self.round):
            how, cause = recovery.describe(failure), cause_of(failure).value
            self.events.add("failure", task=failure.task, how=how, cause=cause)
        if not self.round.recoverable:
            return self._give_up() if worth_saving(self.round) else self._end()
        leaving = self._departures.leaving
        if not grown:
            ran = time.monotonic() - self._started
            remembered = self.recovery.after(self.round, leaving, seconds=ran)
            if remembered is None:
                self.gave_up = True
                return self._give_up()
            self.recovery = remembered
        self._timers.clear()
        self._rendezvous.opens()
        if leaving and not self._departures.leave_enough(self.plan, self.round):
            self.round = replace(self.round, preempting=True)
        if self.round.preempting:
            return self._begin(number, self.plan)
        verdict = self._decide(number)
        if grown:
            plan = verdict.plan if isinstance(verdict, membership.Start) else self.plan
            joined = plan.agents - self.round.agents
            self.recovery = self.recovery.after_regroup(joined, leaving)
        match verdict:
            case membership.GiveUp():
                self._give_up()
            case membership.Start(plan=plan):
                self._let_go(leaving)
                self._begin(number, plan)
            case membership.Wait(missing=missing, is_enough=is_enough):
                self._wait(number, missing, is_enough=is_enough)

    def _let_go(self, leaving: frozenset[str]) -> list[str]:
        """Dismisses those machines that nobody needs any more; returns their names.

        Args:
          leaving: agents whose machines are being preempted, and which have no workers.
        """
        gone = sorted(leaving & self._departures.excluded(self.recovery))
        for agent in gone:
            member = self._members.get(agent)
            assert member is not None
            self.events.add("let_go", agent=agent)
            self._members.remove(member)
            self.recovery = self.recovery.lost(agent)
            member.send(messages.Shutdown(preempted=True))
        return gone

    def _give_up(self) -> None:
        """No round can follow: what the machines' memory holds is kept at least."""
        if self.recovery.holder(self._members.names) is None:
            return self._end()
        self._timers.clear()
        self._take(ending.save_memory(self.round), State.ENDED)

    def _wait(self, number: int, missing: tuple[str, ...], *, is_enough: bool) -> None:
        """The next round is due, and machines are missing that the job waits for."""
        timeouts = self.spec.timeouts
        seconds = timeouts.rejoin_timeout if is_enough else timeouts.join_timeout
        names = membership.listed(missing)
        how = self.recovery.how[-1] if self.recovery.how else "machines are missing"
        self.view.notice(f"{how}; waiting for {names}, at most {seconds:.0f} s")
        self.events.add("waiting", round=number, agents=list(missing), seconds=seconds)
        round = self._new_round(number)
        round = replace(round, joined=self._members.names & round.agents)
        self._wait_for_all()
        self._take((round, ()), State.ENDED)

    def _begin(self, number: int, plan: Plan) -> None:
        before, self.plan = self.plan, plan
        if number and len(plan.tasks) != len(before.tasks):
            self.events.add("resized", round=number, **membership.change(before, plan))
        self._wait_for_all()
        state = self.round.state
        self._take(state_machine.begin(self._new_round(number), self._members.names), state)

    def _reconsider_soon(self) -> None:
        """Reconsiders once for all machines that come in the same moment."""
        if self._reconsidering is None:
            self._reconsidering = asyncio.get_running_loop().call_soon(self._reconsider)

    def _reconsider(self) -> None:
        """A round that waits may start with other machines; one that runs may have more."""
        self._reconsidering = None
        if self.ended.is_set():
            return
        self._preempt_unless_enough_stay()
        if idle := self._departures.leaving - self.round.agents:
            self._let_go(idle)
        if self.round.state is State.JOINING:
            self._reconsider_waiting()
        if self.round.state is not State.RUNNING or self.round.preempting:
            return
        agents, within = self._departures.due(self.round), None
        if agents:
            within = self.spec.timeouts.preempt_grace * DEPARTURE_PART
        elif not self.round.regrouping:
            without = self._departures.excluded(self.recovery)
            larger = self._rendezvous.growth(self.plan, without)
            agents = larger.agents - self.round.agents if larger else agents
        if agents:
            self.events.add("regroup", round=self.round.number, agents=sorted(agents))
            self._feed(events.Regroup(agents=agents, within=within))

    def _reconsider_waiting(self) -> None:
        verdict, leaving = self._decide(self.round.number), self._departures.leaving
        if isinstance(verdict, membership.Start):
            for agent in self._let_go(leaving):
                self.view.notice(f"{agent} is being preempted, and is done without")
            self._begin(self.round.number, verdict.plan)
        elif leaving - self._departures.excluded(self.recovery):
            # Nobody else has the state, and no round comes to pass it on.
            self._feed(events.Preempt())

    def _decide(self, number: int) -> Verdict:
        return self._rendezvous.decide(self.plan, number, self._departures.excluded(self.recovery))

    def _preempt_unless_enough_stay(self) -> None:
        if self._departures.leaving and not self._departures.leave_enough(self.plan, self.round):
            self._feed(events.Preempt())

    # --- what a person is told --------------------------------------------------------------

    def _recovered(self) -> None:
        """The first step of a round: what was lost is made up for."""
        since, is_over = self.recovery.since, self.round.state not in GOES_ON
        if since is None or is_over:  # a step that was made before it failed once more
            return
        self._tell()
        record = self.recovery.record(time.monotonic() - since)
        self.events.add(self.recovery.kind, round=self.round.number, **record)
        self.recovery = self.recovery.mended

    def _tell(self) -> None:
        if self.recovery.since is not None:
            seconds = time.monotonic() - self.recovery.since
            if text := self.recovery.sentence(self.plan.workers, seconds):
                self.view.notice(text)
            self.recovery = self.recovery.told

    def _end(self) -> None:
        watching = [self._watching] if self._watching else []
        self._timers.clear()
        for timer in (*self._closed, *watching):
            timer.cancel()
        self._members.broadcast(messages.Shutdown(preempted=self.round.preempted))
        self.ended.set()
