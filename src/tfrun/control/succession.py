"""Has successors started beside the job, hears of them, and has them taken in between two steps."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from tfrun.control import in_place, successors
from tfrun.control.agent_orders import AgentOrders
from tfrun.control.in_place import InPlace, Waiting
from tfrun.control.machines import Members
from tfrun.control.membership import steady
from tfrun.control.placement import Plan
from tfrun.control.protocol import messages, wire
from tfrun.control.recovery import Recovery
from tfrun.control.rounds.model import ChangeMachines, Round, State
from tfrun.control.successors import Successors
from tfrun.control.view import View
from tfrun.job import reports
from tfrun.job.spec import JobSpec
from tfrun.observe.events import EventLog

MOST_TRACES = 32  # that a successor is told


class Succession:
    """The successors of a job, and whether its workers can stay.

    Attributes:
      short: why the job does without those that it needs: the next round is of fresh processes.
    """

    def __init__(
        self, spec: JobSpec, members: Members, orders: AgentOrders, events: EventLog, view: View
    ) -> None:
        self._spec, self._members, self._orders = spec, members, orders
        self._events, self._view = events, view
        self._known = Successors(limit=spec.max_restarts)
        self._can: dict[str, bool] = {}
        self._traces = (0, list[str]())  # in which training, and what the chief has traced there
        self._overlaps = False  # so have the workers traced their sums
        self._cannot_since: float | None = 0.0
        self._began, self._stepped = time.monotonic(), False
        self._in_place = False
        self._call, self._call_since = 0, time.monotonic()
        self.short = ""

    @property
    def waiting(self) -> list[Waiting]:
        """The successors that are ready."""
        return self._known.waiting

    @property
    def given_up(self) -> bool:
        """True when successors have failed so often that no more are started."""
        return self._known.given_up

    # --- what the workers say ---------------------------------------------------------------

    def reported(self, task: str, report: reports.Report, round: Round) -> None:
        """Takes a worker's report: whether it can stay; that a step is made."""
        if isinstance(report, reports.CanStay):
            self._can[task], self._overlaps = report.can, report.overlaps
            could, can = self._cannot_since is None, self._all_can(round)
            if could != can:
                self._cannot_since = None if can else time.monotonic()
                why = "" if can else report.why
                self._events.add("can_stay", round=round.number, can=can, why=why)
        if isinstance(report, reports.FirstStep):
            self._stepped = True
        if isinstance(report, reports.LoopTraced):
            call, known = self._traces
            known = known if call == report.call else []
            if report.trace not in known and len(known) < MOST_TRACES:
                known = [*known, report.trace]
            self._traces = report.call, known

    def _all_can(self, round: Round) -> bool:
        scripts = (task for task in round.tasks if task.runs == "script" and not task.is_aside)
        return all(self._can.get(task.name, False) for task in scripts)

    def serves(self, plan: Plan) -> bool:
        """True where machines that come are taken in by successors: no worker starts again for it.

        Between two calls of `fit` workers cannot stay for a moment, which changes nothing.
        """
        if not in_place.allows(self._spec, plan) or self._known.given_up:
            return False
        since, patience = self._cannot_since, self._spec.timeouts.grow_after
        return since is None or (since > 0.0 and time.monotonic() - since < patience)

    # --- from round to round ----------------------------------------------------------------

    def begins(self, takes: Mapping[str, str] | None, number: int) -> None:
        """A round begins: with processes that wait, or else with fresh ones and no successors.

        Args:
          takes: for each task the process that becomes it; None where all are fresh.
          number: the round's.
        """
        self._began, self._stepped, self._in_place = time.monotonic(), False, takes is not None
        if takes is None:
            self.stop()
            self._can, self._cannot_since, self.short = {}, 0.0, ""
            self._known = Successors(limit=self._spec.max_restarts, count=self._known.count)
            return
        # They have just shown it, and tell when it changes.
        self._can, self._cannot_since = dict.fromkeys(takes, True), None
        new = {task: name for task, name in takes.items() if name in self._known.each}
        for task, name in new.items():
            agent = self._known.each[name].agent
            self._tell(name, agent, task, "taken", round=number)
        self._known = self._known.taken(list(new.values()))

    def stop(self) -> None:
        """Ends all successors: nobody needs them any more."""
        if self._known.each:
            self._members.broadcast(messages.StopSuccessors())
            for one in self._known.each.values():
                self._tell(one.name, one.agent, one.task, "stopped")
            self._known = self._known.without(self._known.each.keys())

    def machine_came(self) -> None:
        """On another machine successors may do better."""
        self._known = self._known.afresh()

    def lost(self, agent: str) -> None:
        """Takes the news that a machine is gone, or its zygote."""
        for name in self._known.here([agent]):
            self._tell(name, agent, self._known.each[name].task, "lost")
        self._known = self._known.without(self._known.here([agent]))

    # --- what agents say of successors ------------------------------------------------------

    def heard(self, agent: str, message: wire.Message) -> None:
        """Takes what an agent says of a successor."""
        match message:
            case messages.SuccessorStarted():
                self._has_started(agent, message)
            case messages.SuccessorReady():
                self._is_ready(agent, message)
            case messages.SuccessorExited():
                self._has_exited(agent, message)

    def _has_started(self, agent: str, message: messages.SuccessorStarted) -> None:
        if one := self._known.each.get(message.successor):
            self._tell(one.name, agent, one.task, "started", pid=message.pid, call=one.call)
            log = f"{one.task.replace(':', '-')}.log"
            self._view.notice(f"a successor starts beside the job; its output is in {log}")

    def _is_ready(self, agent: str, message: messages.SuccessorReady) -> None:
        name, now = message.successor, time.monotonic()
        if one := self._known.each.get(name):
            self._known = self._known.is_ready(name, message.port, now)
            self._tell(name, agent, one.task, "ready", seconds=round(now - one.began, 3))
            self._view.notice(f"a successor is ready after {now - one.began:.1f} s")

    def _has_exited(self, agent: str, message: messages.SuccessorExited) -> None:
        """Takes the news that one has come to nothing; another one is tried, but not for ever."""
        name = message.successor
        if one := self._known.each.get(name):
            self._fails([name], str(message.status), message.tail)
            self._tell(name, agent, one.task, "ended", status=str(message.status))

    def _fails(self, names: Collection[str], how: str, tail: str = "") -> None:
        said = tail.strip().splitlines()[-1:] or [""]
        tasks = {self._known.each[name].task.replace(":", " ") for name in names}
        self._known = self._known.ended(names)
        why = f" ({said[0]:.200})" if said[0] else ""
        text = f"a successor of {' and '.join(sorted(tasks))} came to nothing: {how}{why}"
        if self._known.given_up:
            text += f"; {self._known.failed} have failed in a row, so the job goes on without one"
            self._events.add("successors_given_up", failed=self._known.failed)
        self._view.notice(text)

    def _tell(self, name: str, agent: str, task: str, what: str, **more: object) -> None:
        place = {"successor": name, "agent": agent, "task": task, "state": what}
        self._events.add("successor", **place, **more)

    # --- what is to be done now -------------------------------------------------------------

    def consider(
        self, plan: Plan, round: Round, recovery: Recovery, without: Collection[str]
    ) -> ChangeMachines | None:
        """Starts successors where there are too few; returns what the round is interrupted for.

        Args:
          plan: the running round's.
          round: the round.
          recovery: knows the call of `fit` that the job is in.
          without: the agents whose machines are being preempted.
        """
        if round.state is not State.RUNNING or round.preempting or not round.recovers:
            return None
        if round.regrouping or round.done or not in_place.allows(self._spec, plan):
            return None
        now = time.monotonic()
        if self._is_short(plan, now):
            return ChangeMachines(agents=plan.agents)
        if self._call != recovery.call:
            self._overtake(recovery.call, now - self._call_since)
            self._call, self._call_since = recovery.call, now
        self._drop_late(now)
        # The first step belongs to those that make it.
        since = now - self._began
        begun = self._stepped or (self._in_place and since >= self._spec.timeouts.settle)
        if begun and self._cannot_since is None:
            self._start(plan, round, recovery.call, without, now)
        if not self._stepped or self._cannot_since is not None:
            return None
        here = self._members.names
        new = successors.due(self._spec, plan, self._known, without, here, now)
        return ChangeMachines(agents=new) if new else None

    def _overtake(self, call: int, lasted: float) -> None:
        """Ends the successors for the call before."""
        if overtaken := self._known.overtaken(call):
            how = "the job is in another fit by now"
            self._end(overtaken, how)
            self._known = self._known.without_overtaken(call, lasted)
            text = f"a successor is of no use: {how}"
            if wait := self._known.patience:
                text += f"; another one starts in a fit that lasts longer than {wait:.1f} s"
            self._view.notice(text)

    def _drop_late(self, now: float) -> None:
        timeouts = self._spec.timeouts
        seconds = timeouts.join_timeout + timeouts.trace_timeout
        if self._stepped and (late := self._known.late(now, seconds)):
            how = f"not ready in {seconds:.0f} s"
            self._end(late, how)
            self._fails(late, how)

    def _end(self, names: Collection[str], how: str) -> None:
        self._members.broadcast(messages.StopSuccessors(successors=list(names)))
        for name in names:
            one = self._known.each[name]
            self._tell(name, one.agent, one.task, "ended", status=how)

    def _start(
        self, plan: Plan, round: Round, call: int, without: Collection[str], now: float
    ) -> None:
        others = self._members.standing_by(plan.agents | set(without), now)
        there = (plan.agents - set(without)) | steady(self._spec, others)
        in_call = now - self._call_since
        for agent, task in successors.wanted(self._spec, plan, there, self._known, in_call):
            self._known, new = self._known.started(agent, task, call, now)
            traces = self._traces[1] if self._traces[0] == call else []
            like = {"traces": traces, "overlaps": self._overlaps}
            self._orders.start_successor(plan, round, new, **like)

    def covers(self, round: Round, agent: str) -> bool:
        """True where enough workers are left without a machine, with the successors that wait."""
        left = [task for task in round.tasks if task.agent != agent and not task.is_aside]
        ready = [one for one in self.waiting if one.agent != agent]
        enough = len(left) + len(ready) >= self._spec.workers.low
        return enough and bool(left) and self._cannot_since is None

    def _is_short(self, plan: Plan, now: float) -> bool:
        """True once a job has fewer workers than it needs, and no successor comes."""
        least = self._spec.workers.low
        if plan.workers >= least or self._known.each:
            return False
        limit = self._spec.timeouts.join_timeout
        if not self.short and (self._known.given_up or now - self._began > limit):
            self.short = f"{plan.workers} of {least} workers were left, and no successor came"
            self._view.notice(f"{self.short}: all start again")
        return bool(self.short)

    def next_round(
        self, plan: Plan, round: Round, leaving: Collection[str], *, call: int, more: bool
    ) -> InPlace | None:
        """Returns the round in place that follows; None when it has to be one of fresh processes.

        Args:
          plan: the plan of the round before.
          round: that round, all of whose tasks are out of it.
          leaving: the agents whose machines are being preempted.
          call: the `fit` call that those are in that stayed, or come to next.
          more: others may be on their way.
        """
        if self.short or round.preempting:
            return None
        stay, ready = in_place.stayers(round), self._known.waiting_for(call)
        more = more and not self._known.given_up
        here = self._members.names
        return in_place.next_round(
            self._spec, plan, stay, ready, leaving=leaving, there=here, more=more
        )
