"""Tells a strategy of its cluster, which need not be that of this process's environment."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from tfrun.cluster.cluster_spec import TaskKey
from tfrun.cluster.tf_config import parse_tf_config
from tfrun.job.settings import settings
from tfrun.job.world import tf_config


def resolver() -> Any:
    """Tells of the workers of this round; of a successor that rehearses none but itself."""
    if not settings().rehearses and tf_config() == os.environ.get("TF_CONFIG", ""):
        return tf.distribute.cluster_resolver.TFConfigClusterResolver()
    config = parse_tf_config(tf_config())
    cluster, task = config.cluster.texts, config.task
    assert task is not None, "a place in a cluster"
    if settings().rehearses:
        cluster = {"worker": [cluster[task.type][task.index]]}
        task = TaskKey(type="worker", index=0)
    return PlaceResolver(
        tf.train.ClusterSpec(cluster), task_type=task.type, task_id=task.index, rpc_layer="grpc"
    )


class PlaceResolver(tf.distribute.cluster_resolver.SimpleClusterResolver):
    """Tells of a cluster that does not stand in this process's environment."""

    def num_accelerators(
        self, task_type: Any = None, task_id: Any = None, config_proto: Any = None
    ) -> dict[str, int]:
        """The GPUs of this process: by default none, and its strategy computes on the CPU."""
        return {"GPU": context.num_gpus()}
