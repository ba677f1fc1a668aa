"""Any events in any order: what always holds of a round."""

from __future__ import annotations

import itertools
from dataclasses import replace

from control_rounds import (
    done,
    exited,
    job_not_saved,
    job_saved,
    kill,
    memory_saved,
    raised,
    resumed,
    saved,
    stayed,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tfrun.control.protocol.messages import Leave, Release, StopRound
from tfrun.control.rounds.model import (
    AgentJoined,
    AgentLost,
    AgentPrepared,
    ChangeMachines,
    DecideStay,
    Event,
    GraceOver,
    Interrupt,
    PlannedTask,
    Preempt,
    PrepareAgents,
    ReplaceTask,
    Reported,
    Round,
    SetTimer,
    StartTasks,
    State,
    StayDecided,
    TimedOut,
)
from tfrun.control.rounds.state_machine import TRANSITIONS, begin, step
from tfrun.job.first_failure import Failure
from tfrun.job.reports import StateNotSaved
from tfrun.job.restart_policy import Cause, cause_of

ORDER = list(State)  # a round only ever goes forward
AGENTS = ("a", "b")
STARTED = {State.RUNNING, State.RELEASING, State.LEAVING, State.STOPPING}
WAITING = (State.RELEASING, State.LEAVING, State.STOPPING, State.SAVING)
# "ghost" is no part of the round: messages come from another machine.
AGENT = st.sampled_from([*AGENTS, "ghost"])
TASK = st.sampled_from(["t0", "t1", "t2", "ghost"])
CODE = st.sampled_from([0, 0, 1, 7, -2, -9, -11, -15])


class AnyOrder(RuleBasedStateMachine):
    """Feeds events to a round and checks each step."""

    @initialize(
        runs=st.lists(st.sampled_from(["script", "server"]), min_size=1, max_size=3),
        hosts=st.lists(st.sampled_from(AGENTS), min_size=3, max_size=3),
        recovers=st.booleans(),
        number=st.sampled_from([0, 1]),
        resumes=st.booleans(),
    )
    def begin(
        self, runs: list[str], hosts: list[str], recovers: bool, number: int, resumes: bool
    ) -> None:
        runs[0] = "script"  # a round without a script would have nothing to do
        tasks = tuple(
            PlannedTask(
                name=f"t{i}", agent=hosts[i], runs=run, replaceable=run == "server" and i == 1
            )
            for i, run in enumerate(runs)
        )
        self.round = Round(
            number=number, tasks=tasks, recovers=recovers, keeps=recovers, replacements=2
        )
        if number:
            self.round = replace(self.round, resumes=resumes)
            self.round, _ = begin(self.round, frozenset(AGENTS))
        self.clock = itertools.count()
        self.timers: set[State] = set()
        self.asked = False  # whether those that wait may stay

    def feed(self, event: Event) -> None:
        before = self.round
        self.round, actions = step(before, event)
        kinds = [type(action) for action in actions]

        assert ORDER.index(self.round.state) >= ORDER.index(before.state), "it went back"
        kind = type(event.report if isinstance(event, Reported) else event)
        if before.state is State.ENDED or kind not in TRANSITIONS[before.state]:
            assert (self.round, actions) == (before, ()), "late news changed something"
        if not (kind in (Interrupt, GraceOver, StateNotSaved) and before.state is State.LEAVING):
            kept = [f for f in before.failures if not f.silent]
            assert len(self.round.failures) >= len(kept), "a failure was forgotten"
        assert set(self.round.exits) >= set(before.exits)
        if self.round.failures or self.round.interrupted:
            assert Release not in kinds, "released after a failure"
            assert StartTasks not in kinds and PrepareAgents not in kinds
        for kind, state in (
            (PrepareAgents, State.PREPARING),
            (StartTasks, State.RUNNING),
            (Release, State.RELEASING),
        ):
            assert (kind in kinds) <= (before.state is not state is self.round.state), kind
        if isinstance(event, Interrupt) and before.state in (State.RELEASING, State.STOPPING):
            assert actions == (kill(number=before.number),)
        self.timers |= {action.state for action in actions if isinstance(action, SetTimer)}
        if self.round.state is State.STOPPING and before.state is not State.STOPPING:
            assert kinds[-2:] == [StopRound, SetTimer], "stopping without a stop or a timer"
        if self.round.state is State.LEAVING and before.state is not State.LEAVING:
            rest = [kind for kind in kinds if kind is not DecideStay]
            rest = rest if before.has_servers else rest[1:]
            assert before.has_servers or kinds[0] is Leave, "nobody was told"
            assert rest in ([SetTimer], [StopRound, SetTimer]), "leaving without a timer"
        if ReplaceTask in kinds:
            assert before.state is self.round.state is State.RUNNING
            assert self.round.exits == before.exits, "what is started again has not ended"
        if self.round.recoverable and before.state is not State.ENDED:
            causes = {cause_of(failure) for failure in self.round.failures}
            assert causes <= {Cause.INFRASTRUCTURE}, "the script's own failure is not mended"
            assert causes or self.round.regrouping
            assert self.round.recovers and not self.round.interrupted
            assert self.round.state is State.ENDED
            over = self.round.is_over and not self.round.in_place
            assert over or before.state is State.PREPARING or self.round.in_place
        if self.round.in_place and before.state is not State.ENDED:
            assert isinstance(event, StayDecided) and self.round.recoverable
            assert self.round.waiting and not self.round.awaited, "somebody is still in it"
        if DecideStay in kinds:
            assert self.round.state is State.LEAVING and not self.round.afresh
            assert self.round.waiting == self.round.remaining
        self.asked |= DecideStay in kinds
        stop = [a for a in actions if isinstance(a, StopRound)]
        if stop and self.round.state is before.state is State.LEAVING and self.round.waiting:
            assert all(set(order.tasks) for order in stop), "all are killed"
            killed = {task for order in stop for task in order.tasks}
            assert not killed & self.round.waiting, "who waits is killed"
        if self.round.state is State.ENDED and before.state in STARTED:
            over = self.round.is_over or self.round.in_place
            assert over or isinstance(event, TimedOut), "ended too early"

    @invariant()
    def waiting_states_have_their_timer(self) -> None:
        if hasattr(self, "round") and self.round.state in WAITING:
            assert self.round.state in self.timers
            saves = self.round.state is State.SAVING
            assert saves or not self.round.is_over, "it waits for nothing"
            if self.round.state is State.LEAVING and self.round.waiting:
                assert self.round.awaited or self.asked, "nobody decides"

    @invariant()
    def a_failed_round_has_a_cause(self) -> None:
        if hasattr(self, "round"):
            assert (self.round.root_cause is None) == (not self.round.failures)
            if self.round.state in (State.LEAVING, State.STOPPING):
                asked = self.round.regrouping or self.round.preempting
                assert self.round.failures or self.round.interrupted or asked

    @rule(agent=AGENT)
    def joins(self, agent: str) -> None:
        self.feed(AgentJoined(agent=agent))

    @rule()
    def all_join_and_prepare(self) -> None:
        """The way on, which random steps alone would seldom find."""
        for agent in sorted(self.round.agents):
            self.feed(AgentJoined(agent=agent))
        for agent in sorted(self.round.agents):
            self.feed(AgentPrepared(agent=agent, ports=(1,)))

    @rule(agent=AGENT)
    def prepares(self, agent: str) -> None:
        self.feed(AgentPrepared(agent=agent, ports=(1,)))

    @rule(agent=AGENT, code=st.sampled_from(["TFRUN-301", "TFRUN-402"]), spare=st.booleans())
    def is_lost(self, agent: str, code: str, spare: bool) -> None:
        failure = Failure(task=agent, time=next(self.clock), code=code)
        self.feed(AgentLost(agent=agent, failure=failure, spare=spare))

    @rule(task=TASK)
    def saves(self, task: str) -> None:
        self.feed(saved(task))

    @rule(task=TASK)
    def stays(self, task: str) -> None:
        self.feed(stayed(task))

    @rule()
    def all_that_are_left_stay(self) -> None:
        for task in sorted(self.round.remaining):
            self.feed(stayed(task))

    @rule(in_place=st.booleans())
    def is_decided(self, in_place: bool) -> None:
        self.feed(StayDecided(in_place=in_place))

    @rule(task=TASK)
    def finishes(self, task: str) -> None:
        self.feed(done(task))

    @rule(task=TASK, kind=st.sampled_from(["ValueError", "UnavailableError"]))
    def raises(self, task: str, kind: str) -> None:
        self.feed(raised(task, kind, time=next(self.clock)))

    @rule(task=TASK, code=CODE, memory=st.booleans(), requested=st.booleans())
    def exits(self, task: str, code: int, memory: bool, requested: bool) -> None:
        memory, requested = memory and code == -9, requested and code < 0
        self.feed(exited(task, code, next(self.clock), memory=memory, requested=requested))

    @rule()
    def may_grow(self) -> None:
        self.feed(ChangeMachines(agents=frozenset({"c"})))

    @rule(agent=st.sampled_from(AGENTS))
    def has_to_shrink(self, agent: str) -> None:
        self.feed(ChangeMachines(agents=frozenset({agent}), within=3.0))

    @rule(signal=st.sampled_from(["SIGINT", "SIGTERM", "SIGHUP"]))
    def interrupts(self, signal: str) -> None:
        self.feed(Interrupt(signal=signal))

    @rule(
        event=st.sampled_from(
            [
                *(Preempt(), resumed("t0"), resumed("t1"), GraceOver()),
                *(job_saved(), job_saved(3), job_not_saved("full")),
                *(job_not_saved("off", for_good=True), memory_saved(3), memory_saved(-1)),
                memory_saved(-1, "it is full"),
            ]
        )
    )
    def is_preempted(self, event: Event) -> None:
        self.feed(event)
        if self.round.preempted:
            assert self.round.interrupted and not self.round.recoverable

    @rule(state=st.sampled_from(State))
    def times_out(self, state: State) -> None:
        joining = state in (State.JOINING, State.PREPARING)
        failure = Failure(task="a", time=next(self.clock), code="TFRUN-303") if joining else None
        self.feed(TimedOut(state=state, failure=failure))

    def teardown(self) -> None:
        """Whatever has happened: when every process ends, so does the round."""
        if not hasattr(self, "round") or self.round.state not in STARTED:
            return
        # The servers are ended when the scripts have come to their end.
        for task in sorted(self.round.tasks, key=lambda task: task.runs == "server"):
            if task.name not in self.round.exits and task.agent not in self.round.lost:
                self.exits(task=task.name, code=0, memory=False, requested=False)
        if self.round.state is State.SAVING:
            self.feed(memory_saved(3))
        assert self.round.state is State.ENDED


AnyOrder.TestCase.settings = settings(max_examples=400, stateful_step_count=25, deadline=None)
TestAnyOrder = AnyOrder.TestCase
