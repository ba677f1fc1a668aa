"""Places the tasks of a round on machines: who runs what, where, with which settings."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tfrun.cluster.cluster_file import lacks_chief, tasks_of
from tfrun.cluster.cluster_spec import ClusterSpec
from tfrun.cluster.external_cluster import external_task, serves
from tfrun.cluster.tasks import (
    Task,
    assign_tasks,
    with_evaluator,
)
from tfrun.cluster.tf_config import parse_tf_config
from tfrun.control.rounds.model import PlannedTask
from tfrun.job.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class Site:
    """An agent's machine: its name, the address its peers reach it at, how many tasks it takes."""

    agent: str
    host: str
    slots: int


@dataclass(frozen=True, kw_only=True)
class Whereabouts:
    """What is known of the agents' machines by now; whoever starts the agents fills it in.

    Attributes:
      waiting: why an agent is not there yet, as one clause.
      addresses: where its peers reach an agent's machine, if not at `Site.host`.
      expected: the agents that may still come, or come back when they are lost.
      joined: those that have been there; the controller fills it in.
      failed: those that ended before they had been there; likewise.
      by_connection: an agent is reached where its connection comes from.
      places: agents that stand for machines that nobody has named yet.
    """

    waiting: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    joined: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    places: frozenset[str] = frozenset()
    by_connection: bool = False

    def seen(self, agent: str, address: str | None) -> None:
        """Takes the address that an agent's connection comes from."""
        if self.by_connection and address and not ipaddress.ip_address(address).is_loopback:
            self.addresses[agent] = address


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The tasks of a round by name, in rank order; `sites` are all machines that are known.

    `fixed`: the addresses are stated, and no task can move to another machine.
    """

    tasks: Mapping[str, Task]
    sites: tuple[Site, ...]
    external: str = ""
    fixed: ClusterSpec | None = None

    # Cached: with a thousand machines each is asked for a thousand times while they join.
    @cached_property
    def planned(self) -> tuple[PlannedTask, ...]:
        def aside(task: Task) -> bool:
            return task.role == "evaluator" and not self.external

        with_ps = any(task.role == "ps" for task in self.tasks.values())
        if self.external:
            with_ps = bool(parse_tf_config(self.external).cluster.count("ps"))
        return tuple(
            PlannedTask(
                name=name,
                agent=self.sites[task.host_index].agent,
                runs="server" if serves(task.role, with_ps) else "script",
                replaceable=(with_ps and task.role == "worker") or aside(task),
                is_aside=aside(task),
            )
            for name, task in self.tasks.items()
        )

    @property
    def chief(self) -> str:
        """The task whose output is the job's: the chief, else worker 0, else the only one."""
        return next(iter(self.tasks))

    @property
    def serves(self) -> str:
        """The name of the only task, if it runs no script; else ""."""
        return self.chief if {task.runs for task in self.planned} == {"server"} else ""

    @cached_property
    def part(self) -> str:
        """Which task this job is of a cluster that somebody else has stated, in words; else ""."""
        if not self.external:
            return ""
        told = parse_tf_config(self.external)
        name = f"{told.task.type} {told.task.index}" if told.task else "a task"
        return f"{name} of a cluster of {sum(1 for _ in told.cluster.tasks())}"

    @cached_property
    def agents(self) -> frozenset[str]:
        """The agents that have tasks."""
        return frozenset(self._tasks_by_agent)

    @cached_property
    def _tasks_by_agent(self) -> Counter[str]:
        """How many tasks of an agent are in the cluster."""
        return Counter(task.agent for task in self.planned if not task.is_aside)

    @cached_property
    def workers(self) -> int:
        """How many tasks train; the chief that only coordinates parameter servers does not."""
        roles = Counter(task.role for task in self.tasks.values())
        return roles["worker"] + (0 if roles["ps"] else roles["chief"])

    @cached_property
    def _slots(self) -> dict[str, int]:
        return {site.agent: site.slots for site in self.sites}

    def slots_of(self, agents: Collection[str]) -> int:
        """Returns how many workers these agents take together."""
        return sum(map(self._slots.__getitem__, self._slots.keys() & agents))

    def ports_of(self, agent: str) -> int:
        """Returns how many ports the agent has to reserve."""
        if self.fixed:
            chief = self.planned[0].agent
            return int(lacks_chief(self.fixed) and agent == chief)
        return 0 if self.external else self._tasks_by_agent[agent]

    def stated_ports_of(self, agent: str) -> list[int]:
        """Returns the ports that a cluster file names for the agent's tasks."""
        if not self.fixed:
            return []
        keys = [self.tasks[task.name].key for task in self.planned if task.agent == agent]
        return [self.fixed.address(key).port for key in keys if key in self.fixed]


def make_plan(
    spec: JobSpec,
    sites: Sequence[Site],
    external: str = "",
    *,
    workers: int | None = None,
    there: Collection[str] | None = None,
) -> Plan:
    """Assigns the tasks.

    Args:
      spec: the job.
      sites: the machines, in rank order.
      external: a TF_CONFIG that was there already: one task, which keeps it.
      workers: how many; by default as many as the job may have.
      there: the agents that can have tasks; by default all.
    """
    slots = [
        (site.host, site.slots if there is None or site.agent in there else 0) for site in sites
    ]
    if external:
        (alone,) = assign_tasks(1, slots_by_host=slots)
        key = external_task(external)
        tasks = (replace(alone, role=key.type, index=key.index),)
    else:
        tasks = assign_tasks(workers or spec.workers.high, spec.ps, slots_by_host=slots)
        if spec.evaluator:
            tasks = with_evaluator(tasks)
    named = {f"{task.role}:{task.index}": task for task in tasks}
    return Plan(tasks=named, sites=tuple(sites), external=external)


def fixed_plan(cluster: ClusterSpec, sites: Sequence[Site], *, evaluator: bool = False) -> Plan:
    """Returns the plan of a cluster whose addresses are stated.

    Args:
      cluster: the cluster, of chief, workers and parameter servers.
      sites: its machines, as `hosts_of` has them, or one that takes all tasks.
      evaluator: an evaluator is added.
    """
    tasks = tasks_of(cluster, [site.host for site in sites])
    tasks = with_evaluator(tasks) if evaluator else tasks
    named = {f"{task.role}:{task.index}": task for task in tasks}
    return Plan(tasks=named, sites=tuple(sites), fixed=cluster)
