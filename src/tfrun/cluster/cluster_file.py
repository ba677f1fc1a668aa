"""A cluster file: `{"worker": ["a:2222", "b:2222"], "chief": ["c:2222"]}`, as TensorFlow has it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tfrun.cluster.address import shown
from tfrun.cluster.hosts import Host
from tfrun.cluster.spec import ClusterSpec
from tfrun.cluster.strict_json import keep_repeated
from tfrun.cluster.tasks import Task
from tfrun.cluster.tf_config_cluster import parse_cluster
from tfrun.job.errors import UsageError

TRAINERS = ("chief", "worker")
EXAMPLE = '{"worker": ["host1:2222", "host2:2222"]}'


def parse_cluster_file(text: str, *, where: str) -> ClusterSpec:
    """Reads a cluster file.

    Args:
      text: the file's text.
      where: its name, for the error.

    Raises:
      UsageError: TFRUN-202, 204 or 205 when it is malformed, TFRUN-220 when it has a role that
        cannot be started in this way.
    """
    try:
        value = json.loads(text, object_pairs_hook=keep_repeated)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "TFRUN-202", f"it is not JSON: {error!s:.100}", where=where, expected=EXAMPLE
        ) from None
    cluster = parse_cluster(value, where)
    if not cluster:
        raise UsageError("TFRUN-202", f"{shown(value)} has no tasks", where=where, expected=EXAMPLE)
    others = [role for role, _ in cluster.roles if role not in TRAINERS]
    if others:
        fix = "Leave it out"
        if "ps" in others:
            fix = "For parameter servers on one machine use --ps N, without a cluster file"
        raise UsageError(
            "TFRUN-220",
            f"the role {others[0]!r} of a cluster file is not started by tfrun yet",
            where=f"{where}.{others[0]}",
            expected="the roles chief and worker",
            fix=fix,
        )
    return cluster


def hosts_of(cluster: ClusterSpec) -> tuple[Host, ...]:
    """Returns the hosts in the order of their first task, with a slot for each task."""
    tasks: dict[str, list[str]] = {}
    for name in _task_hosts(cluster):
        tasks.setdefault(Host(name=name).identity, []).append(name)
    return tuple(Host(name=names[0], slots=len(names)) for names in tasks.values())


def is_local(cluster: ClusterSpec) -> bool:
    """True when all addresses are loopback, so that no other machine is meant."""
    places = (address.identity[0] for _, tasks in cluster.roles for address in tasks)
    return all(place == "localhost" for place in places)


def tasks_of(cluster: ClusterSpec, hosts: Sequence[str]) -> tuple[Task, ...]:
    """Returns the tasks in rank order: the chief, then the workers.

    Args:
      cluster: the cluster.
      hosts: the machines' names, as `hosts_of` has them; one alone takes all tasks.
    """
    index = {Host(name=host).identity: number for number, host in enumerate(hosts)}
    places = [
        index[Host(name=name).identity] if len(hosts) > 1 else 0 for name in _task_hosts(cluster)
    ]
    keys = [(role, number) for role in TRAINERS for number in range(cluster.count(role))]
    return tuple(
        Task(
            role=role,
            index=number,
            rank=rank,
            host_index=places[rank],
            local_rank=places[:rank].count(places[rank]),
            local_size=places.count(places[rank]),
        )
        for rank, (role, number) in enumerate(keys)
    )


def _task_hosts(cluster: ClusterSpec) -> list[str]:
    return [address.host for role in TRAINERS for address in cluster.addresses(role)]
