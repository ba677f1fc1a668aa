"""The "task" of a TF_CONFIG."""

from __future__ import annotations

import json

from tfrun.cluster.address import shown
from tfrun.cluster.spec import LEGACY_CHIEF, ROLES, ClusterSpec, TaskKey
from tfrun.cluster.strict_json import Object, near_miss
from tfrun.cluster.tf_config_cluster import ROLE_NAMES
from tfrun.job.errors import UsageError

TASK_EXAMPLE = '"task": {"type": "worker", "index": 0}'


def parse_task(value: object, cluster: ClusterSpec, where: str) -> TaskKey | None:
    def refuse(problem: str, *, at: str = where, expected: str = TASK_EXAMPLE, fix: str = ""):
        return UsageError("TFRUN-203", problem, where=at, expected=expected, fix=fix)

    if value is None or value == {}:
        if not cluster or (cluster.count("ps") and not cluster.count("chief")):
            return None
        raise refuse("the task is missing", fix="Say which task of the cluster this process is")
    if not isinstance(value, Object):
        raise refuse(f"{shown(value)} is not a JSON object")
    if value.repeated is not None:
        raise refuse(f"the key {shown(value.repeated)} stands there twice")
    task = TaskKey(type=_task_type(value, where, refuse), index=_task_index(value, where, refuse))
    _check_member(task, cluster, where)
    return task if cluster else None


def _task_type(task: Object, where: str, refuse) -> str:
    name = task.get("type")
    at = f"{where}.type"
    if name is None:
        raise refuse("the type is missing", at=at)
    if not isinstance(name, str):
        raise refuse(f"{shown(name)} is not a string", at=at, expected=ROLE_NAMES)
    if name == LEGACY_CHIEF:
        return "chief"
    if name not in ROLES:
        near = near_miss(name, (*ROLES, LEGACY_CHIEF))
        fix = f"Write {json.dumps(near)}" if near else ""
        raise refuse(f"{shown(name)} is not a role", at=at, expected=ROLE_NAMES, fix=fix)
    return name


def _task_index(task: Object, where: str, refuse) -> int:
    index = task.get("index")
    at, expected = f"{where}.index", "a whole number from 0"
    if index is None:
        raise refuse("the index is missing", at=at, expected=expected)
    # Shell templates write "0" in quotes and TensorFlow takes it; it takes 0.7 and true as well.
    if isinstance(index, str) and index.isascii() and index.isdigit() and len(index) < 10:
        index = int(index)
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise refuse(f"{shown(index)} is not an index", at=at, expected=expected)
    return index


def _check_member(task: TaskKey, cluster: ClusterSpec, where: str) -> None:
    def refuse(problem: str, expected: str, at: str = f"{where}.index") -> UsageError:
        fix = "Correct the task, or add it to the cluster"
        return UsageError("TFRUN-206", problem, where=at, expected=expected, fix=fix)

    count = cluster.count(task.type)
    if task.type == "evaluator" or not cluster:
        # The evaluator may stand outside the cluster; without a cluster a process is alone.
        if task.index > 0:
            raise refuse(f"there is no {task}", "index 0")
    elif count == 0:
        names = ", ".join(role for role, _ in cluster.roles)
        raise refuse(f"the cluster has no {task.type}", f"a role of {names}", f"{where}.type")
    elif task.index >= count:
        limit = "index 0" if count == 1 else f"an index from 0 to {count - 1}"
        raise refuse(f"the cluster has {count} {task.type} task(s), no {task}", limit)
