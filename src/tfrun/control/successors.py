"""Decides how many successors a job has, where they start, and when they are taken in. Pure.

A successor is a process that runs the script alone, beside the job, until its step is traced. Then
it waits for the place of a worker that is missing, or for that of one that will be. It belongs to
no round. A job that its successors fail, again and again, does without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tfrun.control.in_place import Waiting, with_places
from tfrun.control.placement import Plan
from tfrun.job.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class Successor:
    """A successor.

    Attributes:
      name: "successor:3", like no other in the job.
      agent: where it runs.
      task: the task that it is to become; it may become another.
      call: the `fit` call whose step it traces.
      began: when it was started, in seconds.
      ready: when its step was traced; None before.
      port: reserved for it, once it is ready.
    """

    name: str
    agent: str
    task: str
    call: int
    began: float
    ready: float | None = None
    port: int = 0


@dataclass(frozen=True, kw_only=True)
class Successors:
    """The successors of a job.

    Attributes:
      limit: how many may end in a row, before one has got a place.
      each: those that are there, by name, in the order in which they came.
      count: how many there were.
      failed: how many have ended in a row.
      patience: how long a call of `fit` has to have lasted before another one is started, in
        seconds: one that lasted so long was over before a successor was ready.
    """

    limit: int
    each: Mapping[str, Successor] = field(default_factory=dict)
    count: int = 0
    failed: int = 0
    patience: float = 0.0

    @property
    def given_up(self) -> bool:
        """True when they have failed so often that no more are started."""
        return self.failed > self.limit

    @property
    def waiting(self) -> list[Waiting]:
        """Those that are ready, in the order in which they became so."""
        ready = [one for one in self.each.values() if one.ready is not None]
        return [
            Waiting(name=one.name, agent=one.agent, port=one.port)
            for one in sorted(ready, key=lambda one: one.ready or 0.0)
        ]

    def waiting_for(self, call: int) -> list[Waiting]:
        """Those of them that have traced the step of this `fit` call."""
        return [one for one in self.waiting if self.each[one.name].call == call]

    @property
    def rehearsing(self) -> list[Successor]:
        """Those that are not ready yet."""
        return [one for one in self.each.values() if one.ready is None]

    def started(self, agent: str, task: str, call: int, now: float) -> tuple[Successors, Successor]:
        """Returns these with a new one, and that."""
        name = f"successor:{self.count}"
        new = Successor(name=name, agent=agent, task=task, call=call, began=now)
        return replace(self, each={**self.each, name: new}, count=self.count + 1), new

    def is_ready(self, name: str, port: int, now: float) -> Successors:
        if name not in self.each:
            return self
        ready = replace(self.each[name], ready=now, port=port)
        return replace(self, each={**self.each, name: ready})

    def without(self, names: Collection[str]) -> Successors:
        """Returns these without some that have a place, are stopped, or gone with a machine."""
        return replace(self, each={k: one for k, one in self.each.items() if k not in names})

    def taken(self, names: Collection[str]) -> Successors:
        """Returns these without some that have a place: it works."""
        return replace(self.without(names), failed=0, patience=0.0) if names else self

    def ended(self, names: Collection[str]) -> Successors:
        """Returns these without some that have come to nothing."""
        return replace(self.without(names), failed=self.failed + len(names))

    def afresh(self) -> Successors:
        """Returns these, of which none is known to have failed."""
        return replace(self, failed=0)

    def here(self, agents: Collection[str]) -> list[str]:
        """The names of those on these machines."""
        return [one.name for one in self.each.values() if one.agent in agents]

    def late(self, now: float, seconds: float) -> list[str]:
        """The names of those that come to nothing: they take longer than so many seconds."""
        each = self.each.values()
        return [one.name for one in each if one.ready is None and now - one.began > seconds]

    def overtaken(self, call: int) -> list[str]:
        """The names of those that have traced the step of another call than the job is in."""
        return [one.name for one in self.each.values() if one.call != call]

    def without_overtaken(self, call: int, lasted: float) -> Successors:
        """Returns these without those: it is not their failure, but the next one has to wait.

        Args:
          call: the one that the job is in.
          lasted: for how many seconds it was in the one before.
        """
        names = self.overtaken(call)
        is_short = any(self.each[name].ready is None for name in names)
        patience = max(lasted, self.patience) if is_short else self.patience
        return replace(self.without(names), patience=patience)


def wanted(
    spec: JobSpec, plan: Plan, there: Collection[str], known: Successors, in_call: float
) -> list[tuple[str, str]]:
    """Returns which successors are to be started now: the agent and the task of each.

    As many as there are workers missing, on the machines that have room for them; and the spares,
    on those that are the least full.

    Args:
      spec: the job.
      plan: the running round's.
      there: the agents that can have workers.
      known: those that are there already.
      in_call: for how many seconds the job has been in its call of `fit`.
    """
    if known.given_up or in_call < known.patience:
        return []
    slots = Counter({site.agent: site.slots for site in plan.sites if site.agent in there})
    load = Counter(task.agent for task in plan.planned if not task.is_aside)
    load.update(one.agent for one in known.each.values())
    workers, new = plan.workers, list[tuple[str, str]]()

    def add(agent: str) -> None:
        new.append((agent, f"worker:{min(workers + len(new), spec.workers.high - 1)}"))
        load[agent] += 1

    missing = spec.workers.high - workers - len(known.each)
    for site in plan.sites:
        while missing > len(new) and site.agent in there and slots[site.agent] > load[site.agent]:
            add(site.agent)
    # Workers whose machine is gone are no reason for more than the spares.
    places = min(spec.workers.high, max(workers, sum(slots.values())))
    while there and len(new) + len(known.each) < max(0, places - workers) + spec.spares:
        add(max(slots, key=lambda agent: slots[agent] - load[agent]))
    return new


def due(
    spec: JobSpec,
    plan: Plan,
    known: Successors,
    leaving: Collection[str],
    there: Collection[str],
    now: float,
) -> frozenset[str]:
    """Returns the machines of the successors that are to be taken in now; empty for not now.

    Others that are about to be ready are waited for, for a moment.

    Args:
      spec: the job.
      plan: the running round's.
      known: the successors.
      leaving: the agents whose machines are being preempted.
      there: the agents that are connected.
      now: the time.
    """
    missing = spec.workers.high - plan.workers
    agents = [task.agent for task in plan.planned if not task.is_aside]
    new = with_places(spec, plan, agents, known.waiting, leaving=leaving, there=there)
    if not new:
        return frozenset()
    first = min(known.each[one.name].ready or 0.0 for one in new)
    if len(new) < missing and known.rehearsing and now - first < spec.timeouts.settle:
        return frozenset()
    return frozenset(one.agent for one in new)
