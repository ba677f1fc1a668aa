"""The "cluster" of a TF_CONFIG."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from tfrun.cluster.address import Address, parse_address, shown
from tfrun.cluster.spec import LEGACY_CHIEF, ROLES, ClusterSpec
from tfrun.cluster.strict_json import Object, near_miss
from tfrun.job.errors import UsageError

ROLE_NAMES = "a role of " + ", ".join((*ROLES, LEGACY_CHIEF))
CLUSTER_EXAMPLE = '"cluster": {"worker": ["host1:2222", "host2:2222"]}'


def parse_cluster(value: object, where: str) -> ClusterSpec:
    def refuse(problem: str, *, at: str = where, expected: str = CLUSTER_EXAMPLE, fix: str = ""):
        return UsageError("TFRUN-202", problem, where=at, expected=expected, fix=fix)

    if value is None:
        return ClusterSpec()
    if not isinstance(value, Object):
        raise refuse(f"{shown(value)} is not a JSON object")
    if value.repeated is not None:
        raise refuse(f"the role {shown(value.repeated)} stands there twice", fix="Join their lists")
    roles: dict[str, tuple[Address, ...]] = {}
    for name, tasks in value.items():
        role = "chief" if name == LEGACY_CHIEF else name
        at = f"{where}.{name}"
        if role not in ROLES:
            near = near_miss(name, (*ROLES, LEGACY_CHIEF))
            fix = f"Write {json.dumps(near)}" if near else ""
            raise refuse(f"{shown(name)} is not a role", expected=ROLE_NAMES, fix=fix)
        if role in roles:
            raise refuse(
                "the cluster has both a chief and a master", fix="Leave out master, its old name"
            )
        found = _addresses(tasks, at, refuse)
        if role in ("chief", "evaluator") and len(found) > 1:
            fix = "Make the others workers" if role == "chief" else ""
            raise refuse(f"there are {len(found)} tasks", at=at, expected=f"one {role}", fix=fix)
        roles[role] = found
    _check_roles(roles, refuse)
    _check_distinct(value, roles, where)
    return ClusterSpec.of(roles)


def _addresses(tasks: object, where: str, refuse) -> tuple[Address, ...]:
    expected = "a list of addresses, or an object from indices to addresses"
    if isinstance(tasks, Object):
        tasks = _dense(tasks, where, refuse)
    if not isinstance(tasks, list):
        raise refuse(f"{shown(tasks)} is not a list", at=where, expected=expected)
    if not tasks:
        # TensorFlow would take a parameter server that is not there as its leader, and wait.
        raise refuse(
            "the role has no tasks",
            at=where,
            expected="at least one address",
            fix="Leave out the role",
        )
    return tuple(parse_address(item, where=f"{where}[{i}]") for i, item in enumerate(tasks))


def _dense(tasks: Object, where: str, refuse) -> list[object]:
    """Turns {"0": "a:1", "1": "b:1"}, the second form of `tf.train.ClusterSpec`, into a list."""
    expected = f"the indices 0 to {len(tasks) - 1}, each once"
    by_index: dict[int, object] = {}
    if tasks.repeated is not None:
        raise refuse(f"the index {tasks.repeated} stands there twice", at=where, expected=expected)
    for key, item in tasks.items():
        if not key.isascii() or not key.isdigit() or (key != "0" and key.startswith("0")):
            raise refuse(f"{shown(key)} is not an index", at=where, expected=expected)
        if len(key) > 9 or int(key) >= len(tasks):
            # TensorFlow's strategies count the tasks and compare indices with the count.
            raise refuse(f"the indices have gaps before {key:.20}", at=where, expected=expected)
        by_index[int(key)] = item
    return [by_index[i] for i in range(len(tasks))]


def _check_roles(roles: Mapping[str, object], refuse) -> None:
    if "ps" in roles and "worker" not in roles:
        raise refuse("the cluster has parameter servers but no worker", fix="Add workers")


def _check_distinct(names: Iterable[str], roles: Mapping[str, Sequence[Address]], where: str):
    seen: dict[tuple[str, int], str] = {}
    for name in names:
        for index, address in enumerate(roles["chief" if name == LEGACY_CHIEF else name]):
            place = f"{where}.{name}[{index}]"
            if (first := seen.setdefault(address.identity, place)) != place:
                raise UsageError(
                    "TFRUN-205",
                    f"{str(address)!r} is the same place as {first}",
                    where=place,
                    expected="an address of its own for each task",
                    fix="Give one of them another port or host",
                )
