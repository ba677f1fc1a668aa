"""Reads and writes TF_CONFIG, the variable in which TensorFlow finds its cluster.

The rules are those of `tf.distribute.cluster_resolver.TFConfigClusterResolver`,
`tf.train.ClusterSpec` and tensorflow/python/distribute/multi_worker_util.py. What TensorFlow
accepts but then hangs or crashes on is refused here: a gap in the indices, an address that two
tasks share, an empty role, a misspelt key that would make every machine train alone.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfrun.cluster.address import Address, parse_address, shown
from tfrun.cluster.cluster_spec import LEGACY_CHIEF, ROLES, ClusterSpec, TaskKey
from tfrun.job.errors import UsageError

ROLE_NAMES = "a role of " + ", ".join((*ROLES, LEGACY_CHIEF))
CLUSTER_EXAMPLE = '"cluster": {"worker": ["host1:2222", "host2:2222"]}'
TASK_EXAMPLE = '"task": {"type": "worker", "index": 0}'


@dataclass(frozen=True, kw_only=True)
class TFConfig:
    """A TF_CONFIG that TensorFlow can work with; its cluster is empty for one process alone.

    `task` is this process; None when it is alone, or the coordinator of parameter servers whose
    cluster names no chief.
    """

    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    task: TaskKey | None = None


class Object(dict):
    """A JSON object that remembers a key that was written twice; JSON keeps the last in silence."""

    repeated: str | None = None


def keep_repeated(pairs: list[tuple[str, Any]]) -> Object:
    """For `json.loads(…, object_pairs_hook=…)`."""
    found = Object(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        found.repeated = next(key for key in keys if keys.count(key) > 1)
    return found


def near_miss(word: str, candidates: Iterable[str]) -> str | None:
    """Returns the candidate that `word` was probably meant to be, or None."""
    lowered = {candidate.lower().strip(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word, lowered, n=1, cutoff=0.7)
    return lowered[close[0]] if close else None


def render(cluster: ClusterSpec, task: TaskKey | None) -> str:
    """Returns the TF_CONFIG of a task: JSON on one line; `parse_tf_config` is its inverse."""
    config: dict[str, Any] = {"cluster": cluster.texts}
    if task is not None:
        config["task"] = {"type": task.type, "index": task.index}
    return json.dumps(config)


def parse_tf_config(text: str, *, where: str = "TF_CONFIG") -> TFConfig:
    """Reads and checks a TF_CONFIG.

    Returns:
      The cluster and this process's task. The role "master" is read as "chief". Keys that only
      Google Cloud knows ("environment", "job", "task.trial", …) are passed over.

    Raises:
      UsageError: TFRUN-201 to TFRUN-206, for the first thing that is wrong.
    """
    config = _load(text, where)
    cluster = parse_cluster(config.get("cluster"), f"{where} cluster")
    if config.get("rpc_layer") not in (None, "", "grpc"):
        raise UsageError(
            "TFRUN-202",
            f"{shown(config['rpc_layer'])} is not a protocol of TensorFlow's servers",
            where=f"{where} rpc_layer",
            expected='"grpc"',
            fix="Leave it out",
        )
    return TFConfig(cluster=cluster, task=parse_task(config.get("task"), cluster, f"{where} task"))


def check_against(
    config: TFConfig, *, workers: tuple[int, int] | None = None, ps: int | None = None
) -> None:
    """Refuses a TF_CONFIG that says something else than the command line.

    `workers` are the least and the most of `-n`; None, like `ps`, when it was not given.

    Raises:
      UsageError: TFRUN-207.
    """
    cluster = config.cluster
    if not cluster:
        return
    # With parameter servers the chief coordinates and is no worker.
    have = cluster.count("worker") if cluster.count("ps") else cluster.trainers
    if workers is not None and not workers[0] <= have <= workers[1]:
        low, high = workers
        asked = str(low) if low == high else f"{low}:{high}"
        raise _contradiction(f"it has {have} worker(s), the command line asks for {asked}", "-n")
    if ps is not None and ps != cluster.count("ps"):
        have = cluster.count("ps")
        raise _contradiction(
            f"it has {have} parameter server(s), the command line asks for {ps}", "--ps"
        )


def _contradiction(problem: str, option: str) -> UsageError:
    return UsageError(
        "TFRUN-207",
        f"TF_CONFIG contradicts the command line: {problem}",
        where=f"TF_CONFIG and {option}",
        expected="the same number in both",
        fix=f"Unset TF_CONFIG to let tfrun make the cluster, or leave out {option}",
    )


def _load(text: str, where: str) -> Object:
    expected = "{" + CLUSTER_EXAMPLE + ", " + TASK_EXAMPLE + "}"

    def refuse(problem: str, fix: str = "") -> UsageError:
        return UsageError("TFRUN-201", problem, where=where, expected=expected, fix=fix)

    if not text.strip():
        raise refuse("the value is empty", "Unset it, or fill it in")
    try:
        config = json.loads(text, object_pairs_hook=keep_repeated)
    except json.JSONDecodeError as error:
        fix = "JSON wants double quotes" if "'" in text and '"' not in text else ""
        place = f"line {error.lineno}, column {error.colno}"
        raise refuse(f"the value is not JSON: {error.msg} at {place}: {shown(text)}", fix) from None
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        raise refuse(f"the value is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise refuse(f"{shown(config)} is not a JSON object")
    assert isinstance(config, Object)
    if config.repeated is not None:
        raise refuse(f"the key {shown(config.repeated)} appears twice", "Leave one of them")
    for known in ("cluster", "task"):
        # TensorFlow passes over unknown keys: with "clusters" every machine would train alone.
        if known not in config and (key := near_miss(known, config)):
            raise refuse(f"the key {shown(key)} is not known", f"Write {json.dumps(known)}")
    return config


def parse_cluster(value: object, where: str) -> ClusterSpec:
    def refuse(problem: str, *, at: str = where, expected: str = CLUSTER_EXAMPLE, fix: str = ""):
        return UsageError("TFRUN-202", problem, where=at, expected=expected, fix=fix)

    if value is None:
        return ClusterSpec()
    if not isinstance(value, Object):
        raise refuse(f"{shown(value)} is not a JSON object")
    if value.repeated is not None:
        raise refuse(f"the role {shown(value.repeated)} appears twice", fix="Join their lists")
    roles: dict[str, tuple[Address, ...]] = {}
    for name, tasks in value.items():
        role, at = _role(name, refuse, where), f"{where}.{name}"
        if role in roles:
            raise refuse(
                "the cluster has both a chief and a master", fix="Leave out master, its old name"
            )
        found = _addresses(tasks, at, refuse)
        if role in ("chief", "evaluator") and len(found) > 1:
            fix = "Make the others workers" if role == "chief" else ""
            raise refuse(f"there are {len(found)} tasks", at=at, expected=f"one {role}", fix=fix)
        roles[role] = found
    if "ps" in roles and "worker" not in roles:
        raise refuse("the cluster has parameter servers but no worker", fix="Add workers")
    _check_distinct(value, roles, where)
    return ClusterSpec.of(roles)


def _role(name: str, refuse, at: str) -> str:
    role = "chief" if name == LEGACY_CHIEF else name
    if role in ROLES:
        return role
    near = near_miss(name, (*ROLES, LEGACY_CHIEF))
    fix = f"Write {json.dumps(near)}" if near else ""
    raise refuse(f"{shown(name)} is not a role", at=at, expected=ROLE_NAMES, fix=fix)


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
        raise refuse(f"the index {tasks.repeated} appears twice", at=where, expected=expected)
    for key, item in tasks.items():
        if not key.isascii() or not key.isdigit() or (key != "0" and key.startswith("0")):
            raise refuse(f"{shown(key)} is not an index", at=where, expected=expected)
        if len(key) > 9 or int(key) >= len(tasks):
            # TensorFlow's strategies count the tasks and compare indices with the count.
            raise refuse(f"the indices have gaps before {key:.20}", at=where, expected=expected)
        by_index[int(key)] = item
    return [by_index[i] for i in range(len(tasks))]


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
        raise refuse(f"the key {shown(value.repeated)} appears twice")
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
    return _role(name, refuse, at)


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
