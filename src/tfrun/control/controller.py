"""The controller: one a job. Feeds what it hears into the round and carries out what follows.

A round that has failed recoverably is followed by the next one, as `control.recovery` decides.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

from tfrun.control import membership, messages, preemption, recovery, rounds
from tfrun.control import round_terms as terms
from tfrun.control.gathering import Gathering
from tfrun.control.members import Member, Send
from tfrun.control.orders import order_of
from tfrun.control.plan import Plan, Whereabouts, start_messages
from tfrun.control.reports import event_of
from tfrun.control.round_terms import State
from tfrun.control.timers import Timers
from tfrun.control.view import View
from tfrun.job.exits import ExitStatus
from tfrun.job.failure import Failure
from tfrun.job.restarts import Restarts, cause_of
from tfrun.job.spec import JobSpec
from tfrun.observe.events import EventLog
from tfrun.worker import sigterm

REASON_SECONDS = 0.3
OPEN = (State.JOINING, State.PREPARING, State.RUNNING, State.LEAVING)


class Controller:
    """Owns the job's rounds, one after the other.

    Attributes:
      plan: who runs what in this round.
      round: the round.
      recovery: what is remembered of the rounds before.
      gave_up: the last failure would have been recovered from, had it not come so often.
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
    ) -> None:
        self.spec, self.plan, self.events, self.view = spec, plan, events, view
        self.ended = asyncio.Event()
        self.recovery = recovery.Recovery(restarts=Restarts(limit=spec.max_restarts))
        self.gave_up = False
        self._preemption = preemption.Preemption()
        self._preempting = False
        self.round = self._new_round(0)
        self._window = window
        self._known = whereabouts or Whereabouts()
        self._gathering = Gathering(spec, self._known)
        self._members = self._gathering.members
        self._timers = Timers()
        self._closed: list[asyncio.TimerHandle] = []
        self._watching: asyncio.Task[None] | None = None

    @property
    def waited(self) -> float:
        """For how many seconds the round has been forming."""
        return time.monotonic() - self._gathering.since

    # --- what comes in ----------------------------------------------------------------------

    def start(self) -> None:
        """Begins to wait for the agents."""
        loop = asyncio.get_running_loop()
        self._wait_for_all()
        self._watching = loop.create_task(self._watch())

    def joined(self, hello: messages.Hello, send: Send) -> Member | None:
        """Takes an agent in, for this round or a later one; None when no place is kept for it."""
        agent, known = hello.agent, {site.agent for site in self.plan.sites}
        if agent not in known - self._members.names or self.round.state not in OPEN:
            return None
        if not (self.round.recovers or self.round.state is State.JOINING):
            return None
        self._gathering.came()
        self._known.joined.add(agent)
        member = self._members.add(agent, send, time.monotonic())
        self.events.add("agent_joined", agent=agent, host=hello.host, version=hello.version)
        if self.round.state is State.JOINING and agent in self.round.agents:
            self._feed(terms.AgentJoined(agent=agent))
        else:
            self._members.have_stand_by(member, self.round.number)
        self._reconsider()
        return member

    def left(self, agent: str, reason: str) -> None:
        """Takes the news that an agent's connection has ended."""
        member = self._members.get(agent)
        if member and not self.ended.is_set():
            self._lose(agent, "TFRUN-301", f"the agent {agent} was lost: {reason}")

    def disconnected(self, member: Member, reason: str) -> None:
        """Takes the news that an agent's connection has closed.

        Its process's end, which says more, is seen a moment later by whoever started it.
        """

        def left() -> None:
            if self._members.is_here(member):
                self.left(member.agent, reason)

        self._closed.append(asyncio.get_running_loop().call_later(REASON_SECONDS, left))

    def never_joined(self, agent: str, reason: str, code: str = "TFRUN-301") -> None:
        """Takes the news that an agent's process ended before it had joined."""
        if agent in self._known.joined:
            return
        self._gathering.never_came(agent)
        if self.round.state is State.JOINING and agent in self.round.agents:
            self._lose(agent, code, f"the agent {agent} could not start: {reason}")
        if agent not in self._known.expected and self.round.state in OPEN:
            self.view.notice(f"the agent {agent} could not start, and is done without: {reason}")

    def interrupt(self, signal_name: str) -> None:
        """A person wants the job to end, or the system wants the machine back."""
        self.events.add("interrupted", signal=signal_name)
        event, self._preemption = self._preemption.signalled(signal_name, time.monotonic())
        if event:
            self._feed(event)

    def receive(self, member: Member, message: messages.Message) -> None:
        """Takes a message of an agent that has joined."""
        if not self._members.is_here(member):
            return
        agent, member.heard = member.agent, time.monotonic()
        if member.asked and isinstance(message, messages.Prepared | messages.PrepareFailed):
            return self._stands_by(member, message)
        if getattr(message, "round", self.round.number) != self.round.number:
            return  # late news of a round that is over
        match message:
            case messages.Output(task=task, stream=stream, text=text):
                self.view.output(task, stream, text)
            case messages.Notice(text=text):
                self.events.add("notice", agent=agent, text=text)
                self.view.notice(text)
            case messages.Prepared():
                self.events.add("prepared", agent=agent, import_seconds=message.import_seconds)
                member.ready = member.ready or time.monotonic()
                self._feed(terms.AgentPrepared(agent=agent, ports=tuple(message.ports)))
            case messages.PrepareFailed(code=code):
                if self.round.number and code != "TFRUN-404":
                    code = "TFRUN-301"  # the script ran before: it is the machine that has changed
                self._lose(agent, code, message.reason, message.detail)
            case messages.WorkerStarted(task=task, pid=pid, round=number):
                self.events.add("worker_started", task=task, pid=pid, round=number)
            case messages.WantedBack():
                self._wanted_back(agent)
            case messages.WorkerReport(task=task, report={"kind": sigterm.REPORT}):
                self._wanted_back(agent, task)
            case messages.WorkerReport(task=task, report=report):
                self._reported(task, message.time, report)
            case messages.WorkerExited(task=task):
                status = ExitStatus(code=message.code, out_of_memory=message.out_of_memory)
                self.events.add("worker_exited", task=task, status=str(status), code=status.code)
                how = {"requested": message.requested, "tail": message.tail}
                self._feed(terms.TaskExited(task=task, time=message.time, status=status, **how))

    def _stands_by(
        self, member: Member, message: messages.Prepared | messages.PrepareFailed
    ) -> None:
        member.asked -= 1
        if isinstance(message, messages.Prepared):
            seconds = message.import_seconds
            self.events.add("standing_by", agent=member.agent, import_seconds=seconds)
            member.ready = time.monotonic()
        else:
            self.left(member.agent, message.reason)

    def _reported(self, task: str, when: float, report: dict[str, Any]) -> None:
        self.events.add("worker_report", task=task, report=report)
        self.recovery = self.recovery.reported(report)
        if event := event_of(task, when, report, chief=self.plan.chief):
            self._feed(event)
        if report.get("kind") == "first_step":
            self._gathering.stepped()
            self._recovered()
        elif not event:
            self.view.report(task, report)

    def _wanted_back(self, agent: str, task: str = "") -> None:
        self.events.add("wanted_back", agent=agent, task=task)
        self._feed(terms.Preempt())

    def _lose(self, agent: str, code: str, reason: str, detail: str = "") -> None:
        """An agent is gone for this round, and for the job unless its zygote alone has died."""
        member = self._members.get(agent)
        if member is not None and code != "TFRUN-404":
            self._members.remove(member)
            member.send(messages.Shutdown())  # if it was only away, its workers must not go on
        failure = Failure(task=agent, time=time.time(), code=code, tail=reason, error={})
        self.events.add("agent_lost", agent=agent, code=code, reason=reason, detail=detail)
        if agent not in self.round.agents:
            return
        spare = not isinstance(
            self._gathering.decide(self.plan, self.round.number), membership.GiveUp
        )
        self._feed(terms.AgentLost(agent=agent, failure=failure, spare=spare))

    # --- time -------------------------------------------------------------------------------

    def _wait_for_all(self) -> None:
        self._timers.set(State.JOINING, self.spec.timeouts.join_timeout, self._join_timed_out)

    def _join_timed_out(self) -> None:
        failure = membership.not_formed(self.round, self._known.waiting, time.time())
        self._feed(terms.TimedOut(state=self.round.state, failure=failure))

    async def _watch(self) -> None:
        timeouts = self.spec.timeouts
        while True:
            await asyncio.sleep(timeouts.heartbeat_interval)
            for member in self._members.silent(time.monotonic(), timeouts.heartbeat_timeout):
                self.left(member.agent, f"silent for {timeouts.heartbeat_timeout:.0f} s")
            self._reconsider()

    # --- what goes out ----------------------------------------------------------------------

    def _feed(self, event: terms.Event) -> None:
        before = self.round.state
        self._take(rounds.step(self.round, event), before)

    def _take(self, result: rounds.Result, before: State) -> None:
        self.round, actions = result
        if self.round.state is not before:
            self.events.add("round", number=self.round.number, state=self.round.state.value)
            self._entered(self.round.state, before)
        for action in actions:
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

    def _do(self, action: terms.Action) -> None:
        number = self.round.number
        match action:
            case terms.PrepareAgents():
                for agent in self.round.agents:
                    ports = self.plan.ports_of(agent)
                    self._send(agent, messages.Prepare(round=number, ports=ports))
            case terms.StartTasks():
                self._start_tasks()
            case terms.SetTimer(state=state, seconds=seconds):
                event = terms.TimedOut(state=state)
                self._timers.set(state, seconds, lambda: self._feed(event))
            case terms.SetGrace(seconds=seconds):
                self._preempting, loop = True, asyncio.get_running_loop()
                self._closed.append(loop.call_later(seconds, self._feed, terms.GraceOver()))
            case _ if order := order_of(action, number):
                self._members.broadcast(order)

    def _start_tasks(self) -> None:
        # With a snapshot to go on from, what the scripts print again on the way there is no news.
        muted = self.recovery.snapshot is not None
        tasks = start_messages(
            self.plan,
            self.spec,
            self.round.number,
            self.round.ports,
            self._window,
            self._known.addresses,
            muted=muted,
        )
        self.view.next_round()
        if not muted:
            self._tell()
        for agent in self.round.agents:
            message = messages.StartRound(round=self.round.number, tasks=tasks[agent])
            self._send(agent, message)

    def _send(self, agent: str, message: messages.Message) -> None:
        if member := self._members.get(agent):
            member.send(message)

    # --- from round to round ----------------------------------------------------------------

    def _new_round(self, number: int) -> terms.Round:
        more = {"resumes": self.recovery.snapshot is not None, "preempting": self._preempting}
        return recovery.new_round(self.spec, self.plan, number, **more)

    def _round_ended(self) -> None:
        grown = self.round.has_regrouped
        for failure in () if grown else recovery.first_failures(self.round):
            how, cause = recovery.describe(failure), cause_of(failure).value
            self.events.add("failure", task=failure.task, how=how, cause=cause)
        if not self.round.recoverable:
            return self._end()
        if not grown:
            remembered = self.recovery.after(self.round)
            if remembered is None:
                self.gave_up = True
                return self._end()
            self.recovery = remembered
        self._timers.clear()
        self._gathering.opens()
        match self._gathering.decide(self.plan, self.round.number + 1):
            case membership.GiveUp():
                self._end()
            case membership.Start(plan=plan):
                if grown:
                    joined = plan.agents - self.round.agents
                    self.recovery = self.recovery.after_growth(joined)
                self._begin(self.round.number + 1, plan)
            case membership.Wait(missing=missing, is_enough=is_enough):
                self._wait(self.round.number + 1, missing, is_enough=is_enough)

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
        self._take(rounds.begin(self._new_round(number), self._members.names), state)

    def _reconsider(self) -> None:
        """A round that waits may start with other machines; one that runs may have more."""
        if self.round.state is State.JOINING:
            verdict = self._gathering.decide(self.plan, self.round.number)
            if isinstance(verdict, membership.Start):
                self._begin(self.round.number, verdict.plan)
        larger = None
        if self.round.state is State.RUNNING and not self.round.regrouping:
            larger = self._gathering.growth(self.plan)
        if larger is not None:
            agents = larger.agents - self.round.agents
            self.events.add("regroup", round=self.round.number, agents=sorted(agents))
            self._feed(terms.Regroup(agents=agents))

    # --- what a person is told --------------------------------------------------------------

    def _recovered(self) -> None:
        """The first step of a round: what was lost is made up for."""
        since = self.recovery.since
        if since is None:
            return
        if self.recovery.snapshot is not None:
            self._tell()
        kind = "grown" if self.recovery.grown else "recovered"
        record = self.recovery.record(time.monotonic() - since)
        self.events.add(kind, round=self.round.number, **record)
        self.recovery = self.recovery.mended

    def _tell(self) -> None:
        if self.recovery.since is not None:
            seconds = time.monotonic() - self.recovery.since
            self.view.notice(self.recovery.sentence(len(self.plan.tasks), seconds))
            self.recovery = self.recovery.told

    def _end(self) -> None:
        watching = [self._watching] if self._watching else []
        self._timers.clear()
        for timer in (*self._closed, *watching):
            timer.cancel()
        self._members.broadcast(messages.Shutdown())
        self.ended.set()
