"""Assigns tasks to machines: ranks, hosts, and the environment of each task's process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tfrun.cluster.address import Address
from tfrun.cluster.cluster_spec import ClusterSpec, TaskKey
from tfrun.cluster.tf_config import render
from tfrun.job.errors import UsageError
from tfrun.job.settings import ROUND


@dataclass(frozen=True, kw_only=True)
class Task:
    """One process of a round.

    Attributes:
      role: "chief", "worker", "ps" or "evaluator".
      index: the number among the tasks of this role, from 0.
      rank: the number among the training tasks (chief first, then workers), from 0; None for a
        parameter server or the evaluator.
      host_index: which of the given hosts it runs on, from 0.
      local_rank: the rank among the training tasks of its host, from 0; None for a parameter
        server.
      local_size: the number of training tasks on its host.
    """

    role: str
    index: int
    rank: int | None = None
    host_index: int
    local_rank: int | None = None
    local_size: int

    @property
    def key(self) -> TaskKey:
        return TaskKey(type=self.role, index=self.index)


def assign_tasks(
    workers: int, ps: int = 0, *, slots_by_host: Sequence[tuple[str, int]]
) -> tuple[Task, ...]:
    """Gives each task its rank and its host.

    Workers fill the hosts' slots in the given order, so neighbours in rank share a host. Without
    parameter servers all training tasks are workers and worker 0 is the chief. With them, a chief
    that only coordinates runs on the first host, and the servers are dealt out to the hosts in
    turn, because their network interfaces are what they share; neither takes a slot. A host
    without slots gets nothing.

    Args:
      workers: the number of workers, at least 1.
      ps: the number of parameter servers.
      slots_by_host: (host, number of workers that it takes) in the order of preference.

    Returns:
      The tasks: chief, workers, parameter servers, each role in the order of its indices.

    Raises:
      UsageError: TFRUN-103 when there are fewer slots than workers.
    """
    assert workers >= 1 and ps >= 0, (workers, ps)
    slots = [host for host, (_, count) in enumerate(slots_by_host) for _ in range(count)]
    if len(slots) < workers:
        raise UsageError(
            "TFRUN-103",
            f"{workers} workers do not fit on {len(slots_by_host)} host(s) with {len(slots)} slots",
            where="-n",
            expected=f"at most {len(slots)}",
            fix="Ask for fewer workers, or give the hosts more slots",
        )
    trainers = [("worker", index, host) for index, host in enumerate(slots[:workers])]
    if ps:
        trainers.insert(0, ("chief", 0, slots[0]))
    # By name: several agents may share a machine, and their workers are neighbours.
    hosts = [slots_by_host[host][0] for *_, host in trainers]
    tasks = _ranked(trainers, hosts)
    sizes = Counter(hosts)
    there = [index for index, (_, count) in enumerate(slots_by_host) if count]
    for index in range(ps):
        host = there[index % len(there)]
        size = sizes[slots_by_host[host][0]]
        tasks.append(Task(role="ps", index=index, host_index=host, local_size=size))
    return tuple(tasks)


def tasks_on(hosts: Sequence[tuple[int, str]]) -> tuple[Task, ...]:
    """Returns workers that run where they are: worker i on `hosts[i]`, an index and a name."""
    trainers = [("worker", index, host) for index, (host, _) in enumerate(hosts)]
    return tuple(_ranked(trainers, [name for _, name in hosts]))


def _ranked(trainers: Sequence[tuple[str, int, int]], hosts: Sequence[str]) -> list[Task]:
    """Returns the training tasks of these roles, indices and hosts, in rank order.

    Args:
      trainers: of each its role, its index and its host's.
      hosts: the name of each one's host.
    """
    sizes, before = Counter(hosts), Counter[str]()
    tasks = []
    for rank, ((role, index, host), name) in enumerate(zip(trainers, hosts, strict=True)):
        tasks.append(
            Task(
                role=role,
                index=index,
                rank=rank,
                host_index=host,
                local_rank=before[name],
                local_size=sizes[name],
            )
        )
        before[name] += 1
    return tasks


def with_evaluator(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """Returns the tasks and an evaluator, beside the first of them. It takes no slot."""
    host = tasks[0].host_index
    return (*tasks, Task(role="evaluator", index=0, host_index=host, local_size=1))


def cluster_of(tasks: Sequence[Task], addresses: Sequence[Address]) -> ClusterSpec:
    """Returns the cluster of `tasks`, of which task i listens on `addresses[i]`."""
    by_role: dict[str, dict[int, Address]] = {}
    for task, address in zip(tasks, addresses, strict=True):
        by_role.setdefault(task.role, {})[task.index] = address
    return ClusterSpec.of(
        {role: [found[i] for i in range(len(found))] for role, found in by_role.items()}
    )


def environment_for(
    task: Task, cluster: ClusterSpec, round: int, world_size: int
) -> dict[str, str]:
    """Returns the variables that tell a task's process who it is.

    Returns:
      `TF_CONFIG`, `WORLD_SIZE`, `LOCAL_WORLD_SIZE`, `TFRUN_ROUND`; for training tasks also `RANK`
      and `LOCAL_RANK`.
    """
    if task.role == "evaluator":
        # It stands outside, alone: a strategy that a script makes must not look for peers.
        cluster, world_size = ClusterSpec(), 1
    assert task.key in cluster or not cluster, (task, cluster)
    environment = {
        "TF_CONFIG": render(cluster, task.key),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(task.local_size),
        ROUND: str(round),
    }
    if task.rank is not None and task.local_rank is not None:
        environment["RANK"] = str(task.rank)
        environment["LOCAL_RANK"] = str(task.local_rank)
    return environment
