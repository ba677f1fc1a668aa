"""A cluster that somebody else has set up: TF_CONFIG is in the environment already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from tfrun.cluster.cluster_spec import LEGACY_CHIEF, TaskKey
from tfrun.cluster.ports import check_free
from tfrun.cluster.tf_config import check_against, parse_tf_config
from tfrun.job.settings import ROUND
from tfrun.job.world import world_from_environment


def external_tf_config(
    environment: Mapping[str, str], *, workers: tuple[int, int] | None, ps: int | None
) -> str:
    """Returns the TF_CONFIG of the environment when it states a cluster, else "".

    The text stays as it is, with the keys that only its platform and its script know; but the
    role "master", which TensorFlow 2 refuses, becomes "chief".

    `workers` are the least and the most of `-n`; None, like `ps`, when it was not given.

    Raises:
      UsageError: TFRUN-201 to 207 when it is malformed or contradicts the command line, 208
        when this task's port is taken.
    """
    text = environment.get("TF_CONFIG")
    if text is None:
        return ""
    config = parse_tf_config(text)
    check_against(config, workers=workers, ps=ps)
    if not config.cluster:
        return ""
    # The evaluator and the coordinator of parameter servers are not in the cluster: no port.
    if config.task is not None and config.task in config.cluster:
        address = config.cluster.address(config.task)
        check_free(address.port, where=f"TF_CONFIG cluster.{config.task}")
    return _with_chief(text)


def _with_chief(text: str) -> str:
    values = json.loads(text)
    cluster, task = values["cluster"], values.get("task") or {}
    if LEGACY_CHIEF not in (*cluster, task.get("type")):
        return text
    values["cluster"] = {"chief" if r == LEGACY_CHIEF else r: a for r, a in cluster.items()}
    if task.get("type") == LEGACY_CHIEF:
        task["type"] = "chief"
    return json.dumps(values)


def external_task(tf_config: str) -> TaskKey:
    """Returns the one task that tfrun starts in somebody else's cluster.

    Without parameter servers it is a worker among others, whatever its role.
    """
    config = parse_tf_config(tf_config)
    if config.task is not None and (config.cluster.count("ps") or config.task.type == "evaluator"):
        return config.task
    return TaskKey(type="chief" if config.cluster.count("ps") else "worker", index=0)


def serves(role: str, cluster_has_ps: bool) -> bool:
    """True for a task that runs TensorFlow's server, and none of the script."""
    return role == "ps" or (role == "worker" and cluster_has_ps)


def is_server(tf_config: str) -> bool:
    """Whether the task of this TF_CONFIG is such a one."""
    config = parse_tf_config(tf_config)
    return config.task is not None and serves(config.task.type, bool(config.cluster.count("ps")))


def external_aside(tf_config: str) -> TaskKey | None:
    """Returns the task of this TF_CONFIG if it trains nothing: a server, or the evaluator."""
    if not tf_config:
        return None
    task = external_task(tf_config)
    return task if is_server(tf_config) or task.type == "evaluator" else None


def external_sizes(tf_config: str) -> tuple[int, int]:
    """Returns how many tasks of this TF_CONFIG train, and how many are servers."""
    cluster = parse_tf_config(tf_config).cluster
    return max(cluster.trainers, 1), cluster.count("ps")


def external_name(tf_config: str) -> str:
    """Returns which task of this TF_CONFIG this process is, "worker-1"; "" where it is none."""
    task = parse_tf_config(tf_config).task if tf_config else None
    return f"{task.type}-{task.index}" if task else ""


def external_seed(tf_config: str) -> int:
    """Returns the random seed of a job whose tasks know no more of each other than TF_CONFIG.

    It follows from the cluster, so that what their script draws is the same on all of them.
    """
    cluster = json.dumps(json.loads(tf_config)["cluster"], sort_keys=True).encode()
    return int.from_bytes(hashlib.blake2b(cluster, digest_size=4).digest(), "big") >> 1


def external_environment(tf_config: str, round: int) -> dict[str, str]:
    """Returns the variables of the one task that tfrun starts in somebody else's cluster."""
    world = world_from_environment({"TF_CONFIG": tf_config})
    return {
        "TF_CONFIG": _as_connected(tf_config),
        "RANK": str(world.rank),
        "WORLD_SIZE": str(world.size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        ROUND: str(round),
    }


def _as_connected(tf_config: str) -> str:
    """The TF_CONFIG without evaluators, but for themselves.

    A coordinator of parameter servers connects with every task that it finds there, and would wait
    for ever for an evaluator, which runs no server (tensorflow/python/eager/remote.py).
    """
    config = json.loads(tf_config)
    if (config.get("task") or {}).get("type") == "evaluator":
        return tf_config
    evaluators = config.get("cluster", {}).pop("evaluator", None)
    return tf_config if evaluators is None else json.dumps(config)
