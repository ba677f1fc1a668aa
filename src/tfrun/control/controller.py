"""The controller: one per job. Hears agents, a person and signals; its round runner decides."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from tfrun.control import remote_logs
from tfrun.control.machines import Away, Member, Send
from tfrun.control.preempted_machines import asked_to_end
from tfrun.control.protocol import messages, versions, wire
from tfrun.control.round_runner import RoundRunner
from tfrun.control.rounds.model import AgentPrepared, Reported, State
from tfrun.control.silent_machines import Silence, told_of
from tfrun.job import reports, supported_versions
from tfrun.job.doubts import Doubts
from tfrun.observe.monitor import Monitor

REASON_SECONDS = 0.3
LEAST_SLEEP = 0.02
OPEN = (State.JOINING, State.PREPARING, State.RUNNING, State.LEAVING)


class Controller:
    """Hears agents, a person and signals.

    Attributes:
      runner: the job's rounds.
      doubts: what the workers do that is probably not meant.
      differing: by machine, in what its versions are not those of the first one.
      untested: which programs are newer than those that tfrun was tested with.
    """

    def __init__(self, runner: RoundRunner, monitor: Monitor | None = None) -> None:
        self.runner, self._monitor = runner, monitor
        self.spec, self.events, self.view = runner.spec, runner.events, runner.view
        self._known, self._members = runner.known, runner.members
        self.doubts, self.differing, self.untested = Doubts(), dict[str, str](), ""
        self._first: messages.Hello | None = None  # with which others are compared
        self._stacks: dict[str, str] = {}
        self._copies = remote_logs.Copies(Path(self.spec.run_dir, "logs"), self.view.notice)
        self._asked: float | None = None  # when the first SIGTERM came
        self._silence = Silence()
        self._cut_off = False  # and a person was told so

    def start(self) -> None:
        """Begins to wait for the agents."""
        self.runner.wait_for_all()
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def joined(
        self, hello: messages.Hello, send: Send, address: str | None = None
    ) -> Member | None:
        """Takes an agent in, for this round or a later one; None when no place is kept for it.

        Args:
          hello: what it has said first.
          send: sends it a message.
          address: where its connection comes from.
        """
        agent, runner = hello.agent, self.runner
        self._known.seen(agent, address)
        known, state = {site.agent for site in runner.plan.sites}, runner.round.state
        if agent not in known - self._members.names or state not in OPEN:
            return None
        if not (runner.round.recovers or state is State.JOINING):
            return None
        if before := self._members.away.pop(agent, None):  # it was silent, and is another one now
            before.member.send(messages.Shutdown(preempted=before.member.leaves, lost=True))
        self._known.joined.add(agent)
        member = self._members.add(agent, send, time.monotonic())
        self.events.add("agent_joined", agent=agent, host=hello.host, version=hello.version)
        if not self.untested and (text := supported_versions.newer(hello.programs)):
            self.untested = text  # told once, however many machines have them
            self._notice(agent, f"TFRUN-111: {text}; tfrun tries it, but it may not work")
        first = self._first = self._first or hello
        if text := versions.difference(agent, hello.programs, first.agent, first.programs):
            self.differing[agent] = text
            self._notice(agent, f"{text}: workers may fail, or compute different results")
        runner.machines.take_in(member)
        return member

    def _notice(self, agent: str, text: str) -> None:
        self.events.add("notice", agent=agent, text=text)
        self.view.notice(text)

    def left(self, agent: str, reason: str) -> None:
        """Takes the news that an agent's connection has ended."""
        member = self._members.get(agent)
        if member and not self.runner.ended.is_set():
            self.runner.machines.lose(agent, "TFRUN-301", f"the agent {agent} was lost: {reason}")

    def disconnected(self, member: Member, reason: str) -> None:
        """Takes the news that an agent's connection has closed.

        Its process's end, which says more, is seen a moment later by whoever started it.
        """

        def left() -> None:
            if (away := self._members.away.get(member.agent)) and away.member is member:
                del self._members.away[member.agent]
            if self._members.is_here(member):
                self.left(member.agent, reason)

        self.runner.timers.later(REASON_SECONDS, left)

    def never_joined(self, agent: str, reason: str, code: str = "TFRUN-301") -> None:
        """Takes the news that an agent's process ended before it had joined."""
        if agent in self._known.joined:
            return
        self._known.failed.add(agent)
        round = self.runner.round
        if round.state is State.JOINING and agent in round.agents:
            self.runner.machines.lose(agent, code, f"the agent {agent} could not start: {reason}")
        if agent not in self._known.expected and self.runner.round.state in OPEN:
            self.view.notice(
                f"the agent {agent} could not start, so the job goes on without it: {reason}"
            )

    def interrupt(self, signal_name: str) -> None:
        """A person wants the job to end, or the launcher's machine is being preempted."""
        self.events.add("interrupted", signal=signal_name)
        now = time.monotonic()
        event = asked_to_end(signal_name, None if self._asked is None else now - self._asked)
        if signal_name == "SIGTERM" and self._asked is None:
            self._asked = now
        if event:
            self.runner.feed(event)

    def ask_for_stacks(self, *, threads: bool) -> dict[str, str]:
        """Asks all workers for their Python stacks; what is returned fills as they answer."""
        self._stacks = {}
        number = self.runner.round.number
        self._members.broadcast(messages.TakeStacks(round=number, threads=threads))
        return self._stacks

    def receive(self, member: Member, message: wire.Message) -> None:
        """Takes a message of an agent that has joined."""
        if (away := self._members.away.get(member.agent)) and away.member is member:
            self._heard_again(away)
        if not self._members.is_here(member):
            return
        agent, runner, member.heard = member.agent, self.runner, time.monotonic()
        if member.asked and isinstance(message, messages.Prepared | messages.PrepareFailed):
            return self._stands_by(member, message)
        if isinstance(message, messages.RoundMessage) and message.round != runner.round.number:
            return  # late news of a round that is over
        match message:
            case messages.Output(task=task, stream=stream, text=text):
                self.view.output(task, stream, text)
            case messages.Log():
                self._copies.append(message)
            case messages.Notice(text=text):
                self._notice(agent, text)
            case messages.Prepared():
                self.events.add("prepared", agent=agent, import_seconds=message.import_seconds)
                member.ready = member.ready or time.monotonic()
                runner.feed(AgentPrepared(agent=agent, ports=tuple(message.ports)))
            case messages.PrepareFailed(code=code):
                if runner.round.number and code != "TFRUN-404":
                    code = "TFRUN-301"  # the script ran before: it is the machine that has changed
                runner.machines.lose(agent, code, message.reason, message.detail)
            case messages.WorkerStarted(task=task, pid=pid, round=number):
                who = {"task": task, "agent": agent, "pid": pid}
                self.events.add("worker_started", **who, round=number)
            case messages.Preempted():
                self._preempted(agent)
            case messages.WorkerReport():
                if report := reports.read(message.report):
                    self._reported(agent, message, report)
            case (
                messages.SuccessorStarted() | messages.SuccessorReady() | messages.SuccessorExited()
            ):
                runner.succession.heard(agent, message)
                runner.reconsider_soon()
            case messages.WorkerExited(task=task):
                asked = {"requested": True} if message.requested else {}
                ended = {"status": str(message.status), "code": message.code, **asked}
                self.events.add("worker_exited", task=task, **ended)
                runner.feed(message)
            case messages.StacksTaken(task=task, text=text):
                self._stacks[task] = text
            case messages.MemorySaved(step=step, problem=problem):
                self.events.add("memory_saved", agent=agent, step=step, problem=problem)
                runner.feed(message)

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

    def _reported(self, agent: str, message: messages.WorkerReport, report: reports.Report) -> None:
        task, when = message.task, message.time
        if isinstance(report, reports.WorkerPreempted):
            return self._preempted(agent, task)
        if not isinstance(report, reports.StepsMade | reports.Comes):  # they come all the time
            self.events.add("worker_report", task=task, report=reports.encode(report))
        self.runner.reported(agent, task, when, report, message.port)
        match report:
            case reports.StepsMade():
                if self._monitor and (said := self._monitor.reported(task, report)):
                    self.view.notice(said)
            case reports.DoubtRaised():
                self._doubted(task, when, report)
            case _:
                self.view.report(task, report)

    def _doubted(self, task: str, when: float, report: reports.DoubtRaised) -> None:
        tasks = (t for t in self.runner.round.tasks if t.runs == "script" and not t.is_aside)
        scripts = [planned.name for planned in tasks]
        self.doubts, doubt = self.doubts.reported(task, report, scripts)
        if doubt is None:
            return
        self.events.add("doubt", code=doubt.code, text=doubt.text)
        if self.spec.strict:
            self.runner.feed(Reported(task=task, time=when, report=doubt.error, strict=True))
        else:
            self.view.notice(f"WARNING {doubt}")

    def _preempted(self, agent: str, task: str = "") -> None:
        self.events.add("wanted_back", agent=agent, task=task)
        self.runner.machines.preempt(agent)

    async def _watch(self) -> None:
        timeouts, ended = self.spec.timeouts, self.runner.ended
        while not ended.is_set():
            # At the very moment: what is looked at once a second is noticed a second late.
            due = self._members.until_silent(time.monotonic(), timeouts.heartbeat_timeout)
            wait = min(max(due, LEAST_SLEEP), timeouts.heartbeat_interval)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), wait)
                return
            self._listen(time.monotonic())
            self.runner.reconsider()

    def _listen(self, now: float) -> None:
        """Who says nothing is lost, unless it is we whom nobody reaches."""
        round, plan = self.runner.round, self.runner.plan
        heard, world = self._members.heard(), round.agents
        if not heard:
            self._silence, self._cut_off = Silence(), False
            return
        if round.has_servers:  # the chief can go on without the other workers
            world = {task.agent for task in round.tasks if task.name == plan.chief}
        timeouts, before = self.spec.timeouts, self._silence
        if len(plan.sites) > 1 or self._known.waiting:
            self._silence, lost = before.after(now, heard, world, timeouts)
        else:  # on this machine alone no network can break
            lost = {a for a, at in heard.items() if now - at >= timeouts.heartbeat_timeout}
        if before.since is not None and self._silence.since is None and self._cut_off:
            self._cut_off = False
            self.events.add("heard_again", seconds=before.seconds(now))
            self.view.notice(
                f"the machines have been heard from again after {before.seconds(now):.1f} s"
            )
        for agent in sorted(lost):
            if self.runner.ended.is_set():
                return
            reason = f"the agent {agent} was lost: silent for {now - heard[agent]:.0f} s"
            if self._known.waiting:
                self._known.waiting[agent] = "it says nothing: it is down, or its network is"
            self.runner.machines.lose(agent, "TFRUN-301", reason, silent=True)
        quiet = self._silence.seconds(now)
        if quiet >= timeouts.heartbeat_timeout and not lost and not self._cut_off:
            self._cut_off = True
            self.events.add("cut_off", seconds=quiet)
            self.view.notice(told_of(quiet, sorted(heard), timeouts))

    def _heard_again(self, away: Away) -> None:
        """One that counts as lost was only silent: its memory is good, if still the last.

        It is not, once others train on; then it ends, and comes anew.
        """
        member, now, round = away.member, time.monotonic(), self.runner.round
        waits = round.state is State.JOINING and round.number == away.round + 1
        if not (round.number == away.round or waits) or self.runner.ended.is_set():
            del self._members.away[member.agent]
            member.send(messages.Shutdown(preempted=member.leaves, lost=True))
            return
        self.events.add("agent_back", agent=member.agent, seconds=now - member.heard)
        self.runner.machines.take_back(away, now)
