"""Runs TensorFlow's server instead of the script, in workers and parameter servers."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

_running: list[Any] = []


def serve(until: Callable[[], None] | None = None) -> None:
    """Runs TensorFlow's server for this process's task in TF_CONFIG.

    Args:
      until: returns when the server is not needed any more; without it, it serves for ever.
    """
    import tensorflow as tf

    # A coordinator must hear of a lost server at once rather than wait for it to come back:
    # https://www.tensorflow.org/tutorials/distribute/parameter_server_training
    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = resolver.cluster_spec()
    config = tf.compat.v1.ConfigProto()
    workers = cluster.num_tasks("worker") if "worker" in cluster.jobs else 0
    # Each worker's closure may hold an inter-op thread of a server while it waits for variables.
    config.inter_op_parallelism_threads = workers + 1
    server = tf.distribute.Server(
        cluster,
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        config=config,
        start=True,
    )
    _running.append(server)  # its end is the process's: TensorFlow cannot take it down
    (until or server.join)()
