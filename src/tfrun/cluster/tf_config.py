"""TF_CONFIG, the variable in which TensorFlow finds its cluster: reading and writing it.

The rules are those of `tf.distribute.cluster_resolver.TFConfigClusterResolver`,
`tf.train.ClusterSpec` and tensorflow/python/distribute/multi_worker_util.py. What TensorFlow
accepts but then hangs or crashes on is refused here: a gap in the indices, an address that two
tasks share, an empty role, a misspelt key that would make every machine train alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tfrun.cluster.address import shown
from tfrun.cluster.spec import ClusterSpec, TaskKey
from tfrun.cluster.strict_json import Object, keep_repeated, near_miss
from tfrun.cluster.tf_config_cluster import CLUSTER_EXAMPLE, parse_cluster
from tfrun.cluster.tf_config_task import TASK_EXAMPLE, parse_task
from tfrun.job.errors import UsageError

__all__ = ["ClusterSpec", "TFConfig", "TaskKey", "check_against", "parse_tf_config", "render"]


@dataclass(frozen=True, kw_only=True)
class TFConfig:
    """A TF_CONFIG that TensorFlow can work with.

    Attributes:
      cluster: the tasks; empty for one process alone.
      task: this process; None when it is alone, or the coordinator of parameter servers whose
        cluster names no chief.
    """

    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    task: TaskKey | None = None


def render(cluster: ClusterSpec, task: TaskKey | None) -> str:
    """Returns the TF_CONFIG of a task: JSON on one line; `parse_tf_config` is its inverse."""
    config: dict[str, Any] = {"cluster": cluster.texts}
    if task is not None:
        config["task"] = {"type": task.type, "index": task.index}
    return json.dumps(config)


def parse_tf_config(text: str, *, where: str = "TF_CONFIG") -> TFConfig:
    """Reads and checks a TF_CONFIG.

    Args:
      text: the JSON text.
      where: the variable or file that it came from, for the error.

    Returns:
      The cluster and this process's task. The role "master" is read as "chief". Keys that only
      Google Cloud knows ("environment", "job", "task.trial", …) are passed over.

    Raises:
      UsageError: TFRUN-201 to TFRUN-206, for the first thing that is wrong.
    """
    config = _load(text, where)
    cluster = parse_cluster(config.get("cluster"), f"{where} cluster")
    _check_rpc_layer(config.get("rpc_layer"), f"{where} rpc_layer")
    return TFConfig(cluster=cluster, task=parse_task(config.get("task"), cluster, f"{where} task"))


def check_against(
    config: TFConfig, *, workers: tuple[int, int] | None = None, ps: int | None = None
) -> None:
    """Refuses a TF_CONFIG that says something else than the command line.

    Args:
      config: the TF_CONFIG in the environment.
      workers: the least and the most workers that `-n` asks for; None when it was not given.
      ps: the parameter servers that `--ps` asks for; None when it was not given.

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
        raise refuse(f"the key {shown(config.repeated)} stands there twice", "Leave one of them")
    for known in ("cluster", "task"):
        # TensorFlow passes over unknown keys: with "clusters" every machine would train alone.
        if known not in config and (key := near_miss(known, config)):
            raise refuse(f"the key {shown(key)} is not known", f"Write {json.dumps(known)}")
    return config


def _check_rpc_layer(value: object, where: str) -> None:
    if value not in (None, "", "grpc"):
        raise UsageError(
            "TFRUN-202",
            f"{shown(value)} is not a protocol of TensorFlow's servers",
            where=where,
            expected='"grpc"',
            fix="Leave it out",
        )
