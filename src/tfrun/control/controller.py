"""The controller: one a job. Feeds what it hears into the round and carries out what follows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tfrun.control import messages, rounds
from tfrun.control.plan import Plan, Whereabouts, start_messages
from tfrun.job.exits import ExitStatus
from tfrun.job.failure import Failure
from tfrun.job.spec import JobSpec
from tfrun.observe.events import EventLog

REASON_SECONDS = 0.3

Send = Callable[[messages.Message], None]


class View(Protocol):
    """Who shows a person what happens."""

    def output(self, task: str, stream: str, text: str) -> None: ...
    def report(self, task: str, report: dict[str, Any]) -> None: ...
    def notice(self, text: str) -> None: ...
    def mute_errors(self) -> None: ...


@dataclass(kw_only=True)
class _Link:
    """A joined agent."""

    send: Send
    heard: float


class Controller:
    """Owns the job's round. `ended` is set when nothing of it runs any more."""

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
        self.round = rounds.Round(number=0, tasks=self.plan.planned, timeouts=spec.timeouts)
        self._window = window
        self._links: dict[str, _Link] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._whereabouts = whereabouts or Whereabouts()
        self._watching: asyncio.Task[None] | None = None

    # --- what comes in ----------------------------------------------------------------------

    def start(self) -> None:
        """Begins to wait for the agents."""
        loop = asyncio.get_running_loop()
        timeout = self.spec.timeouts.join_timeout
        self._timers.append(loop.call_later(timeout, self._join_timed_out))
        self._watching = loop.create_task(self._watch_heartbeats())

    def joined(self, hello: messages.Hello, send: Send) -> bool:
        """Takes an agent in; False when no place is kept for it."""
        known = hello.agent in self.round.agents and hello.agent not in self._links
        if not known or self.ended.is_set():
            return False
        self._links[hello.agent] = _Link(send=send, heard=time.monotonic())
        self.events.add("agent_joined", agent=hello.agent, host=hello.host, version=hello.version)
        self._feed(rounds.AgentJoined(agent=hello.agent))
        return True

    def left(self, agent: str, reason: str) -> None:
        """Takes the news that an agent's connection has ended."""
        if self._links.pop(agent, None) and not self.ended.is_set():
            self._lose(agent, "TFRUN-301", f"the agent {agent} was lost: {reason}")

    def disconnected(self, agent: str, reason: str) -> None:
        """Takes the news that an agent's connection has closed.

        Its process's end, which says more, is seen a moment later by whoever started it.
        """
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(REASON_SECONDS, self.left, agent, reason))

    def never_joined(self, agent: str, reason: str, code: str = "TFRUN-301") -> None:
        """Takes the news that an agent's process ended before it had joined."""
        if agent not in self.round.joined:
            self._lose(agent, code, f"the agent {agent} could not start: {reason}")

    def interrupt(self, signal_name: str) -> None:
        """A person or the system wants the job to end; the second time, at once."""
        self.events.add("interrupted", signal=signal_name)
        self._feed(rounds.Interrupt(signal=signal_name))

    def receive(self, agent: str, message: messages.Message) -> None:
        """Takes a message of an agent that has joined."""
        link = self._links.get(agent)
        if link is None:
            return
        link.heard = time.monotonic()
        match message:
            case messages.Output(task=task, stream=stream, text=text):
                self.view.output(task, stream, text)
            case messages.Notice(text=text):
                self.events.add("notice", agent=agent, text=text)
                self.view.notice(text)
            case messages.Prepared():
                self.events.add("prepared", agent=agent, import_seconds=message.import_seconds)
                self._feed(rounds.AgentPrepared(agent=agent, ports=tuple(message.ports)))
            case messages.PrepareFailed():
                self._lose(agent, message.code, message.reason, message.detail)
            case messages.WorkerStarted():
                self.events.add("worker_started", task=message.task, pid=message.pid)
            case messages.WorkerReport(task=task, report=report):
                self._reported(task, message.time, report)
            case messages.WorkerExited(task=task):
                status = ExitStatus(code=message.code, out_of_memory=message.out_of_memory)
                self.events.add("worker_exited", task=task, status=str(status), code=status.code)
                self._feed(
                    rounds.TaskExited(
                        task=task,
                        time=message.time,
                        status=status,
                        requested=message.requested,
                        tail=message.tail,
                    )
                )

    def _reported(self, task: str, when: float, report: dict[str, Any]) -> None:
        kind = report.get("kind")
        self.events.add("worker_report", task=task, report=report)
        if kind == "done":
            self._feed(rounds.TaskDone(task=task))
        elif kind == "error":
            self._feed(rounds.TaskRaised(task=task, time=when, error=report))
        else:
            self.view.report(task, report)

    def _lose(self, agent: str, code: str, reason: str, detail: str = "") -> None:
        failure = Failure(task=agent, time=time.time(), code=code, tail=reason, error={})
        self.events.add("agent_lost", agent=agent, code=code, reason=reason, detail=detail)
        if self.round.state is rounds.State.STOPPING and not self.round.interrupted:
            # Its peers' errors, which follow from its end, may well have come first.
            self.round = replace(self.round, failures=(*self.round.failures, failure))
        self._feed(rounds.AgentLost(agent=agent, failure=failure))

    # --- time -------------------------------------------------------------------------------

    def _join_timed_out(self) -> None:
        there = self.round.joined if self.round.state is rounds.State.JOINING else self.round.ports
        missing = sorted(self.round.agents - set(there))
        why = {} if there is self.round.ports else self._whereabouts.waiting
        names = [f"{agent} ({why[agent]})" if why.get(agent) else agent for agent in missing]
        failure = Failure(
            task=", ".join(missing),
            time=time.time(),
            code="TFRUN-303",
            tail=f"the cluster did not form in {self.spec.timeouts.join_timeout:.0f} s: "
            f"waiting for {', '.join(names)}",
        )
        self._feed(rounds.TimedOut(state=self.round.state, failure=failure))

    async def _watch_heartbeats(self) -> None:
        timeouts = self.spec.timeouts
        while True:
            await asyncio.sleep(timeouts.heartbeat_interval)
            for agent, link in tuple(self._links.items()):
                if time.monotonic() - link.heard > timeouts.heartbeat_timeout:
                    self.left(agent, f"silent for {timeouts.heartbeat_timeout:.0f} s")

    # --- what goes out ----------------------------------------------------------------------

    def _feed(self, event: rounds.Event) -> None:
        before = self.round.state
        self.round, actions = rounds.step(self.round, event)
        if self.round.state is not before:
            self.events.add("round", number=self.round.number, state=self.round.state.value)
            if self.round.state is rounds.State.STOPPING:
                self._stopping()
        for action in actions:
            self._do(action)
        if self.round.state is rounds.State.ENDED and not self.ended.is_set():
            self._end()

    def _stopping(self) -> None:
        """What the chief says of its peers' end, or of Ctrl-C, is no news: it is in its log."""
        cause = self.round.root_cause
        if cause is None or cause.task != self.plan.chief:
            self.view.mute_errors()

    def _do(self, action: rounds.Action) -> None:
        number = self.round.number
        match action:
            case rounds.PrepareAgents():
                for agent, link in self._links.items():
                    link.send(messages.Prepare(round=number, ports=self.plan.ports_of(agent)))
            case rounds.StartTasks():
                tasks = start_messages(
                    self.plan,
                    self.spec,
                    number,
                    self.round.ports,
                    self._window,
                    self._whereabouts.addresses,
                )
                for agent, link in self._links.items():
                    link.send(messages.StartRound(round=number, tasks=tasks[agent]))
            case rounds.ReleaseTasks():
                self._broadcast(messages.Release(round=number))
            case rounds.StopTasks(signal=signal, grace=grace):
                self._broadcast(messages.StopRound(round=number, signal=signal, grace=grace))
            case rounds.SetTimer(state=state, seconds=seconds):
                loop = asyncio.get_running_loop()
                self._timers.append(
                    loop.call_later(seconds, self._feed, rounds.TimedOut(state=state))
                )

    def _broadcast(self, message: messages.Message) -> None:
        for link in self._links.values():
            link.send(message)

    def _end(self) -> None:
        for timer in (*self._timers, *([self._watching] if self._watching else [])):
            timer.cancel()
        self._broadcast(messages.Shutdown())
        self.ended.set()
