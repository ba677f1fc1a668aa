"""The controller: one a job. Feeds what it hears into the round and carries out what follows.

A round that has failed recoverably is followed by the next one, as `control.recovery` decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tfrun.control import messages, recovery, rounds
from tfrun.control import round_terms as terms
from tfrun.control.plan import Plan, Whereabouts, start_messages
from tfrun.control.round_terms import State
from tfrun.job.exits import ExitStatus
from tfrun.job.failure import Failure
from tfrun.job.restarts import Restarts, cause_of
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
    def next_round(self) -> None: ...


@dataclass(kw_only=True)
class _Link:
    """A joined agent."""

    send: Send
    heard: float


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
        self.round = self._new_round(0)
        self._window = window
        self._links: dict[str, _Link] = {}
        self._timers: dict[State, asyncio.TimerHandle] = {}
        self._closed: list[asyncio.TimerHandle] = []
        self._ever_joined: set[str] = set()
        self._whereabouts = whereabouts or Whereabouts()
        self._watching: asyncio.Task[None] | None = None

    # --- what comes in ----------------------------------------------------------------------

    def start(self) -> None:
        """Begins to wait for the agents."""
        loop = asyncio.get_running_loop()
        self._wait_for_all()
        self._watching = loop.create_task(self._watch_heartbeats())

    def joined(self, hello: messages.Hello, send: Send) -> bool:
        """Takes an agent in; False when no place is kept for it."""
        known = hello.agent in self.round.agents and hello.agent not in self._links
        if not known or self.round.state is not State.JOINING:
            return False
        self._ever_joined.add(hello.agent)
        self._links[hello.agent] = _Link(send=send, heard=time.monotonic())
        self.events.add("agent_joined", agent=hello.agent, host=hello.host, version=hello.version)
        self._feed(terms.AgentJoined(agent=hello.agent))
        return True

    def left(self, agent: str, reason: str) -> None:
        """Takes the news that an agent's connection has ended."""
        link = self._links.pop(agent, None)
        if link and not self.ended.is_set():
            link.send(messages.Shutdown())  # if it was only away, its workers must not go on
            self._lose(agent, "TFRUN-301", f"the agent {agent} was lost: {reason}")

    def disconnected(self, agent: str, reason: str) -> None:
        """Takes the news that an agent's connection has closed.

        Its process's end, which says more, is seen a moment later by whoever started it.
        """
        link = self._links.get(agent)

        def left() -> None:
            if self._links.get(agent) is link:
                self.left(agent, reason)

        self._closed.append(asyncio.get_running_loop().call_later(REASON_SECONDS, left))

    def never_joined(self, agent: str, reason: str, code: str = "TFRUN-301") -> None:
        """Takes the news that an agent's process ended before it had joined."""
        if agent not in self._ever_joined:
            self._lose(agent, code, f"the agent {agent} could not start: {reason}")

    def interrupt(self, signal_name: str) -> None:
        """A person or the system wants the job to end; the second time, at once."""
        self.events.add("interrupted", signal=signal_name)
        self._feed(terms.Interrupt(signal=signal_name))

    def receive(self, agent: str, message: messages.Message) -> None:
        """Takes a message of an agent that has joined."""
        link = self._links.get(agent)
        if link is None:
            return
        link.heard = time.monotonic()
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
                self._feed(terms.AgentPrepared(agent=agent, ports=tuple(message.ports)))
            case messages.PrepareFailed():
                self._lose(agent, message.code, message.reason, message.detail)
            case messages.WorkerStarted(task=task, pid=pid, round=number):
                self.events.add("worker_started", task=task, pid=pid, round=number)
            case messages.WorkerReport(task=task, report=report):
                self._reported(task, message.time, report)
            case messages.WorkerExited(task=task):
                status = ExitStatus(code=message.code, out_of_memory=message.out_of_memory)
                self.events.add("worker_exited", task=task, status=str(status), code=status.code)
                self._feed(
                    terms.TaskExited(
                        task=task,
                        time=message.time,
                        status=status,
                        requested=message.requested,
                        tail=message.tail,
                    )
                )

    def _reported(self, task: str, when: float, report: dict[str, Any]) -> None:
        self.events.add("worker_report", task=task, report=report)
        self.recovery = self.recovery.reported(report)
        match report.get("kind"):
            case "done":
                self._feed(terms.TaskDone(task=task))
            case "error":
                self._feed(terms.TaskRaised(task=task, time=when, error=report))
            case "snapshot":
                self._feed(terms.TaskSaved(task=task))
            case "job_saved":
                self._feed(terms.JobSaved())
            case "first_step":
                self._recovered()
            case _:
                self.view.report(task, report)

    def _lose(self, agent: str, code: str, reason: str, detail: str = "") -> None:
        failure = Failure(task=agent, time=time.time(), code=code, tail=reason, error={})
        self.events.add("agent_lost", agent=agent, code=code, reason=reason, detail=detail)
        spare = recovery.next_plan(self.spec, self.plan, self._links) is not None
        self._feed(terms.AgentLost(agent=agent, failure=failure, spare=spare))

    # --- time -------------------------------------------------------------------------------

    def _wait_for_all(self) -> None:
        loop, seconds = asyncio.get_running_loop(), self.spec.timeouts.join_timeout
        self._timers[State.JOINING] = loop.call_later(seconds, self._join_timed_out)

    def _join_timed_out(self) -> None:
        there = self.round.joined if self.round.state is State.JOINING else self.round.ports
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
        self._feed(terms.TimedOut(state=self.round.state, failure=failure))

    async def _watch_heartbeats(self) -> None:
        timeouts = self.spec.timeouts
        while True:
            await asyncio.sleep(timeouts.heartbeat_interval)
            for agent, link in tuple(self._links.items()):
                if time.monotonic() - link.heard > timeouts.heartbeat_timeout:
                    self.left(agent, f"silent for {timeouts.heartbeat_timeout:.0f} s")

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
                for agent, link in self._links.items():
                    link.send(messages.Prepare(round=number, ports=self.plan.ports_of(agent)))
            case terms.StartTasks():
                self._start_tasks()
            case terms.ReleaseTasks():
                self._broadcast(messages.Release(round=number))
            case terms.SaveTasks():
                self._broadcast(messages.Save(round=number))
            case terms.LeaveTasks():
                self._broadcast(messages.Leave(round=number))
            case terms.StopTasks(signal=signal, grace=grace, tasks=tasks):
                self._broadcast(
                    messages.StopRound(round=number, signal=signal, grace=grace, tasks=list(tasks))
                )
            case terms.SetTimer(state=state, seconds=seconds):
                if earlier := self._timers.pop(state, None):
                    earlier.cancel()
                event = terms.TimedOut(state=state)
                loop = asyncio.get_running_loop()
                self._timers[state] = loop.call_later(seconds, self._feed, event)

    def _start_tasks(self) -> None:
        # With a snapshot to go on from, what the scripts print again on the way there is no news.
        muted = self.recovery.snapshot is not None
        tasks = start_messages(
            self.plan,
            self.spec,
            self.round.number,
            self.round.ports,
            self._window,
            self._whereabouts.addresses,
            muted=muted,
        )
        self.view.next_round()
        if not muted:
            self._tell()
        for agent, link in self._links.items():
            link.send(messages.StartRound(round=self.round.number, tasks=tasks.get(agent, [])))

    def _broadcast(self, message: messages.Message) -> None:
        for link in self._links.values():
            link.send(message)

    # --- from round to round ----------------------------------------------------------------

    def _new_round(self, number: int) -> terms.Round:
        return terms.Round(
            number=number,
            tasks=self.plan.planned,
            timeouts=self.spec.timeouts,
            recovers=recovery.recovers(self.spec, self.plan),
            saves=bool(self.spec.checkpoint_dir),
        )

    def _round_ended(self) -> None:
        for failure in recovery.first_failures(self.round):
            how, cause = recovery.describe(failure), cause_of(failure).value
            self.events.add("failure", task=failure.task, how=how, cause=cause)
        if not self.round.recoverable:
            return self._end()
        remembered = self.recovery.after(self.round)
        plan = recovery.next_plan(self.spec, self.plan, self._links)
        if remembered is None or plan is None:
            self.gave_up = remembered is None
            return self._end()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.recovery, self.plan = remembered, plan
        self._wait_for_all()
        round = self._new_round(self.round.number + 1)
        self._take(rounds.begin(round, frozenset(self._links)), State.ENDED)

    def _recovered(self) -> None:
        """The first step of a round: what was lost is made up for."""
        since = self.recovery.since
        if since is None:
            return
        if self.recovery.snapshot is not None:
            self._tell()
        self.events.add(
            "recovered",
            round=self.round.number,
            step=self.recovery.resumed or 0,
            lost_steps=self.recovery.lost_steps,
            seconds=time.monotonic() - since,
            restarts=self.recovery.restarts.total,
        )
        self.recovery = self.recovery.mended

    def _tell(self) -> None:
        if self.recovery.since is not None:
            seconds = time.monotonic() - self.recovery.since
            self.view.notice(self.recovery.sentence(len(self.plan.tasks), seconds))
            self.recovery = self.recovery.told

    def _end(self) -> None:
        watching = [self._watching] if self._watching else []
        for timer in (*self._timers.values(), *self._closed, *watching):
            timer.cancel()
        self._broadcast(messages.Shutdown())
        self.ended.set()
