"""The controller: one per job. Feeds what it hears from the agents into the round.

A round that has failed recoverably is followed by the next one, as `control.recovery` decides.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from tfrun.control import membership, remote_logs
from tfrun.control.agent_reports import event_of, memory_event
from tfrun.control.machines import Away, Member, Send
from tfrun.control.placement import Site
from tfrun.control.protocol import messages, versions, wire
from tfrun.control.round_runner import RoundRunner
from tfrun.control.rounds import actions, events
from tfrun.control.rounds.model import State
from tfrun.control.silent_machines import Silence, told_of
from tfrun.job import profile_request, reports, supported_versions
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import Failure

REASON_SECONDS = 0.3
LEAST_SLEEP = 0.02
OPEN = (State.JOINING, State.PREPARING, State.RUNNING, State.LEAVING)


class Controller(RoundRunner):
    """Hears agents and signals."""

    _silence = Silence()
    _cut_off = False  # and a person was told so

    def start(self) -> None:
        """Begins to wait for the agents."""
        self._copies = remote_logs.Copies(Path(self.spec.run_dir, "logs"), self.view.notice)
        loop = asyncio.get_running_loop()
        self._wait_for_all()
        self._watching = loop.create_task(self._watch())

    def seen(self, agent: str, address: str | None) -> None:
        """Takes the address that an agent's connection comes from."""
        self._known.seen(agent, address)

    @property
    def here(self) -> frozenset[str]:
        """The agents that are connected."""
        return self._members.names

    def expect(self, site: Site) -> None:
        """Takes note of a machine that is going to join, and that no plan knows yet."""
        if self.round.number == 0 and self.round.state is State.JOINING:
            self.plan = membership.with_site(self.spec, self.plan, site, self._known.places)
            self.round = replace(self.round, tasks=self.plan.planned, joined=self._members.names)
        else:
            self.plan = replace(self.plan, sites=(*self.plan.sites, site))

    def joined(self, hello: messages.Hello, send: Send) -> Member | None:
        """Takes an agent in, for this round or a later one; None when no place is kept for it."""
        agent, known = hello.agent, {site.agent for site in self.plan.sites}
        if agent not in known - self._members.names or self.round.state not in OPEN:
            return None
        if not (self.round.recovers or self.round.state is State.JOINING):
            return None
        if before := self._members.away.pop(agent, None):  # it was silent, and is another one now
            before.member.send(messages.Shutdown(preempted=before.member.leaves, lost=True))
        self._known.joined.add(agent)
        member = self._members.add(agent, send, time.monotonic())
        self.events.add("agent_joined", agent=agent, host=hello.host, version=hello.version)
        if not self.untested and (text := supported_versions.newer(hello.programs)):
            self.untested = text  # told once, however many machines have them
            text = f"TFRUN-111: {text}: it is tried, and may not fit"
            self.events.add("notice", agent=agent, text=text)
            self.view.notice(text)
        first = self._first = self._first or hello
        if text := versions.difference(agent, hello.programs, first.agent, first.programs):
            self.differing[agent] = text
            text += ": workers may fail, or compute something else, for that"
            self.events.add("notice", agent=agent, text=text)
            self.view.notice(text)
        self._take_in(member)
        return member

    def _take_in(self, member: Member) -> None:
        """Gives one that is there, or there again, a place in this round or a later one."""
        self._rendezvous.came()
        if self.round.state is State.JOINING and member.agent in self.round.agents:
            self._feed(events.AgentJoined(agent=member.agent))
        else:
            self._members.have_stand_by(member, self.round.number)
        self._reconsider_soon()

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
            if (away := self._members.away.get(member.agent)) and away.member is member:
                del self._members.away[member.agent]
            if self._members.is_here(member):
                self.left(member.agent, reason)

        self._closed.append(asyncio.get_running_loop().call_later(REASON_SECONDS, left))

    def never_joined(self, agent: str, reason: str, code: str = "TFRUN-301") -> None:
        """Takes the news that an agent's process ended before it had joined."""
        if agent in self._known.joined:
            return
        self._rendezvous.never_came(agent)
        if self.round.state is State.JOINING and agent in self.round.agents:
            self._lose(agent, code, f"the agent {agent} could not start: {reason}")
        if agent not in self._known.expected and self.round.state in OPEN:
            self.view.notice(f"the agent {agent} could not start, and is done without: {reason}")

    def interrupt(self, signal_name: str) -> None:
        """A person wants the job to end, or the launcher's machine is being preempted."""
        self.events.add("interrupted", signal=signal_name)
        event, self._preemption = self._preemption.signalled(signal_name, time.monotonic())
        if event:
            self._feed(event)

    def ask_for_stacks(self, *, threads: bool) -> dict[str, str]:
        """Asks all workers for their Python stacks; what is returned fills as they answer."""
        self._stacks = {}
        self._members.broadcast(messages.TakeStacks(round=self.round.number, threads=threads))
        return self._stacks

    def ask_for_profile(self, request: profile_request.Request) -> None:
        """Has all workers trace some of their steps; they report when that is done."""
        self._members.broadcast(
            messages.Profile(
                round=self.round.number,
                first=request.first,
                steps=request.steps,
                folder=request.folder,
                name=request.name,
            )
        )

    def receive(self, member: Member, message: wire.Message) -> None:
        """Takes a message of an agent that has joined."""
        if (away := self._members.away.get(member.agent)) and away.member is member:
            self._heard_again(away)
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
            case messages.Log():
                self._copies.append(message)
            case messages.Notice(text=text):
                self.events.add("notice", agent=agent, text=text)
                self.view.notice(text)
            case messages.Prepared():
                self.events.add("prepared", agent=agent, import_seconds=message.import_seconds)
                member.ready = member.ready or time.monotonic()
                self._feed(events.AgentPrepared(agent=agent, ports=tuple(message.ports)))
            case messages.PrepareFailed(code=code):
                if self.round.number and code != "TFRUN-404":
                    code = "TFRUN-301"  # the script ran before: it is the machine that has changed
                self._lose(agent, code, message.reason, message.detail)
            case messages.WorkerStarted(task=task, pid=pid, round=number):
                who = {"task": task, "agent": agent, "pid": pid}
                self.events.add("worker_started", **who, round=number)
            case messages.Preempted():
                self._preempted(agent)
            case messages.WorkerReport():
                if report := reports.read(message.report):
                    self._reported(agent, message.task, message.time, report)
            case messages.WorkerExited(task=task):
                status = ExitStatus(code=message.code, out_of_memory=message.out_of_memory)
                asked = {"requested": True} if message.requested else {}
                ended = {"status": str(status), "code": status.code, **asked}
                self.events.add("worker_exited", task=task, **ended)
                how = {"requested": message.requested, "tail": message.tail}
                self._feed(events.TaskExited(task=task, time=message.time, status=status, **how))
            case messages.StacksTaken(task=task, text=text):
                self._stacks[task] = text
            case messages.MemorySaved(step=step, problem=problem):
                self.events.add("memory_saved", agent=agent, step=step, problem=problem)
                self._feed(memory_event(message))

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

    def _reported(self, agent: str, task: str, when: float, report: reports.Report) -> None:
        match report:
            case reports.WorkerPreempted():
                return self._preempted(agent, task)
            case reports.StepsMade(step=step):
                self.recovery = self.recovery.stepped(step)
                if self._monitor and (said := self._monitor.reported(task, report)):
                    self.view.notice(said)
                return
        self.events.add("worker_report", task=task, report=reports.encode(report))
        self.recovery = self.recovery.reported(report, agent)
        if event := event_of(task, when, report, chief=self.plan.chief):
            self._feed(event)
        match report:
            case reports.EndedAt(step=step):
                self.recovery = self.recovery.stepped(step)
            case reports.DoubtRaised():
                self._doubted(task, when, report)
            case reports.FirstStep():
                self._rendezvous.stepped()
                self._recovered()
            case reports.CheckpointSaved() | reports.CheckpointRestored():
                if not self.recovery.catches_up:  # else the first step that we know tells more
                    self._recovered()
            case _:
                self.view.report(task, report)

    def _doubted(self, task: str, when: float, report: reports.DoubtRaised) -> None:
        tasks = (t for t in self.round.tasks if t.runs == "script" and not t.is_aside)
        scripts = [planned.name for planned in tasks]
        self.doubts, doubt = self.doubts.reported(task, report, scripts)
        if doubt is None:
            return
        self.events.add("doubt", code=doubt.code, text=doubt.text)
        if self.spec.strict:
            self._feed(events.TaskRaised(task=task, time=when, error=doubt.error, strict=True))
        else:
            self.view.notice(f"WARNING {doubt}")

    def _preempted(self, agent: str, task: str = "") -> None:
        """Its grace period begins; the whole job's, if too few machines would be left."""
        self.events.add("wanted_back", agent=agent, task=task)
        if member := self._departures.preempted(agent):
            loop, grace = asyncio.get_running_loop(), self.spec.timeouts.preempt_grace
            self._closed.append(loop.call_later(grace, self._machine_grace_over, member))
        self._preempt_unless_enough_stay()

    def _machine_grace_over(self, member: Member) -> None:
        if self._members.is_here(member) and not self.round.preempting:
            self._lose(member.agent, "TFRUN-301", f"{member.agent} was preempted")

    def _lose(
        self, agent: str, code: str, reason: str, detail: str = "", *, silent: bool = False
    ) -> None:
        """An agent is gone for this round, and for the job unless its zygote alone has died.

        One that is only silent may be heard again.
        """
        member = self._members.get(agent)
        if member is not None and code != "TFRUN-404":
            self._members.remove(member)
            if silent:
                holds = self.recovery.holders.get(agent)
                begun = self.round.number - (self.round.state is State.JOINING)
                away = Away(member=member, round=begun, holds=holds)
                self._members.away[agent] = away
            else:
                member.send(messages.Shutdown(preempted=member.leaves, lost=True))
            self.recovery = self.recovery.lost(agent)
        failure = Failure(task=agent, time=time.time(), code=code, tail=reason)
        self.events.add("agent_lost", agent=agent, code=code, reason=reason, detail=detail)
        if agent not in self.round.agents:
            return
        spare = not isinstance(self._decide(self.round.number), membership.GiveUp)
        self._feed(events.AgentLost(agent=agent, failure=failure, spare=spare))

    def _do(self, action: actions.Action) -> None:
        if not isinstance(action, actions.GiveUpAgents):
            return super()._do(action)
        asyncio.get_running_loop().call_soon(self._give_up_agents, action.agents)

    def _give_up_agents(self, agents: frozenset[str]) -> None:
        """What runs there cannot be ended; where the others are too few, the job ends with them.

        Then the agents stay so long: their machines' memory may be what is saved.
        """
        others = self._members.names - agents
        enough = membership.possible_workers(self.spec, self.plan, others | self._known.expected)
        for agent in sorted(agents):
            reason = f"{agent} was given up: its workers cannot be ended, not even by SIGKILL"
            if enough:
                self._lose(agent, "TFRUN-301", reason)
            else:
                self.events.add("agent_lost", agent=agent, code="TFRUN-301", reason=reason)
                failure = Failure(task=agent, time=time.time(), code="TFRUN-301", tail=reason)
                self._feed(events.AgentLost(agent=agent, failure=failure))

    async def _watch(self) -> None:
        timeouts = self.spec.timeouts
        while True:
            # At the very moment: what is looked at once a second is noticed a second late.
            due = self._members.until_silent(time.monotonic(), timeouts.heartbeat_timeout)
            await asyncio.sleep(min(max(due, LEAST_SLEEP), timeouts.heartbeat_interval))
            self._listen(time.monotonic())
            self._reconsider()

    def _listen(self, now: float) -> None:
        """Who says nothing is lost, unless it is we whom nobody reaches."""
        heard, world = self._members.heard(), self.round.agents
        if not heard:
            self._silence, self._cut_off = Silence(), False
            return
        if self.round.has_servers:  # the chief can go on without the other workers
            world = {t.agent for t in self.round.tasks if t.name == self.plan.chief}
        timeouts, before = self.spec.timeouts, self._silence
        if len(self.plan.sites) > 1 or self._known.waiting:
            self._silence, lost = before.after(now, heard, world, timeouts)
        else:  # on this machine alone no network can break
            lost = {a for a, at in heard.items() if now - at >= timeouts.heartbeat_timeout}
        if before.since is not None and self._silence.since is None and self._cut_off:
            self._cut_off = False
            self.events.add("heard_again", seconds=before.seconds(now))
            self.view.notice(f"the machines are heard again after {before.seconds(now):.1f} s")
        for agent in sorted(lost):
            if self.ended.is_set():
                return
            reason = f"the agent {agent} was lost: silent for {now - heard[agent]:.0f} s"
            if self._known.waiting:
                self._known.waiting[agent] = "it says nothing: it is down, or its network is"
            self._lose(agent, "TFRUN-301", reason, silent=True)
        quiet = self._silence.seconds(now)
        if quiet >= timeouts.heartbeat_timeout and not lost and not self._cut_off:
            self._cut_off = True
            self.events.add("cut_off", seconds=quiet)
            self.view.notice(told_of(quiet, sorted(heard), timeouts))

    def _heard_again(self, away: Away) -> None:
        """One that counts as lost was only silent: its memory is good, if still the last.

        It is not, once others train on; then it ends, and comes anew.
        """
        member, now, number = away.member, time.monotonic(), self.round.number
        waits = self.round.state is State.JOINING and number == away.round + 1
        if not (number == away.round or waits) or self.ended.is_set():
            del self._members.away[member.agent]
            member.send(messages.Shutdown(preempted=member.leaves, lost=True))
            return
        self.events.add("agent_back", agent=member.agent, seconds=now - member.heard)
        self._members.back(member, now)
        if away.holds is not None:
            holders = {**self.recovery.holders, member.agent: away.holds}
            self.recovery = replace(self.recovery, holders=holders)
        self._take_in(member)
