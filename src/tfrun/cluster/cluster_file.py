"""A cluster file: `{"worker": ["a:2222", "b:2222"], "ps": ["c:2222"]}`, as TensorFlow has it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tfrun.cluster.address import Address, shown
from tfrun.cluster.cluster_spec import TRAINERS, ClusterSpec
from tfrun.cluster.host_lists import Host
from tfrun.cluster.tasks import Task
from tfrun.cluster.tf_config import keep_repeated, parse_cluster
from tfrun.job.errors import UsageError

STARTED = (*TRAINERS, "ps")  # roles that tfrun starts, in rank order
EXAMPLE = '{"worker": ["host1:2222", "host2:2222"]}'


def parse_any_cluster(text: str, *, where: str) -> ClusterSpec:
    """Reads a cluster file with whatever roles; a whole TF_CONFIG's "cluster" is taken out of it.

    Raises:
      UsageError: TFRUN-202, 204 or 205 when it is malformed.
    """
    try:
        value = json.loads(text, object_pairs_hook=keep_repeated)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "TFRUN-202", f"it is not JSON: {error!s:.100}", where=where, expected=EXAMPLE
        ) from None
    if isinstance(value, dict) and set(value) in ({"cluster"}, {"cluster", "task"}):
        value = value["cluster"]
    cluster = parse_cluster(value, where)
    if not cluster:
        raise UsageError("TFRUN-202", f"{shown(value)} has no tasks", where=where, expected=EXAMPLE)
    return cluster


def parse_cluster_file(text: str, *, where: str) -> ClusterSpec:
    """Reads a cluster file.

    Raises:
      UsageError: TFRUN-202, 204 or 205 when it is malformed, TFRUN-220 when it has a role that
        cannot be started in this way.
    """
    cluster = parse_any_cluster(text, where=where)
    if cluster.count("evaluator"):
        raise UsageError(
            "TFRUN-220",
            "the role 'evaluator' of a cluster file is not started by tfrun",
            where=f"{where}.evaluator",
            expected="the roles chief, worker and ps",
            fix="Leave it out, and use --evaluator or tfrun serve --role evaluator",
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
    """Returns the tasks in rank order: the chief, the workers, then the parameter servers.

    Parameter servers need a chief that coordinates. Where the file names none, it is beside the
    first worker.

    `hosts` are the machines' names, as `hosts_of` has them; one alone takes all tasks.
    """
    index = {Host(name=host).identity: number for number, host in enumerate(hosts)}
    keys = [(role, number) for role in STARTED for number in range(cluster.count(role))]
    names = _task_hosts(cluster)
    if lacks_chief(cluster):
        keys, names = [("chief", 0), *keys], [names[0], *names]
    places = [index[Host(name=name).identity] if len(hosts) > 1 else 0 for name in names]
    trainers = [place for place, (role, _) in zip(places, keys, strict=True) if role in TRAINERS]
    return tuple(
        Task(
            role=role,
            index=number,
            rank=order if role in TRAINERS else None,
            host_index=place,
            local_rank=trainers[:order].count(place) if role in TRAINERS else None,
            local_size=trainers.count(place),
        )
        for order, (place, (role, number)) in enumerate(zip(places, keys, strict=True))
    )


def lacks_chief(cluster: ClusterSpec) -> bool:
    """True when a coordinator has to be added to the tasks."""
    return cluster.count("ps") > 0 and not cluster.count("chief")


def with_chief(cluster: ClusterSpec, port: int) -> ClusterSpec:
    """Returns the cluster with a chief at this port of the first worker's host."""
    address = Address(host=cluster.addresses("worker")[0].host, port=port)
    return ClusterSpec(roles=(("chief", (address,)), *cluster.roles))


def workers_of(cluster: ClusterSpec) -> int:
    """Returns how many tasks train; with parameter servers the chief only coordinates."""
    return cluster.count("worker") if cluster.count("ps") else cluster.trainers


def _task_hosts(cluster: ClusterSpec) -> list[str]:
    return [address.host for role in STARTED for address in cluster.addresses(role)]
