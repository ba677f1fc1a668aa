"""Chooses how workers communicate: collective implementation, pack size, heartbeat."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.distribute.collective_all_reduce_strategy import coordination_config_pb2
from tensorflow.python.eager import context

from tfrun.engine import compression
from tfrun.job.errors import UsageError
from tfrun.job.settings import settings

CommunicationOptions = tf.distribute.experimental.CommunicationOptions
Implementation = tf.distribute.experimental.CommunicationImplementation

HOST = "host"
# Measured on two processes, 160 tensors of 100 MB in all: one pack 320 ms, packs of 1 MiB 209,
# 2 MiB 196, 4 MiB 164, 8 MiB 205. 11 MB take the same time in one pack or three.
RING_BYTES_PER_PACK = 4 << 20
# A stopped or unreachable worker is noticed after 2 s; with TensorFlow's own 10 s, after 9.
HEARTBEAT_TIMEOUT_MS = 3000
PROBE_TIMEOUT_SECONDS = 60


def options(explicit=None):
    """The options of a strategy: what the script states wins over --communication.

    Args:
      explicit: the script's `tf.distribute.experimental.CommunicationOptions`, or None.

    Returns:
      `CommunicationOptions`, whose packs are tuned unless the script has stated their size.
    """
    way, size = settings().communication, settings().pack_bytes
    return CommunicationOptions(
        # Where the host collective cannot be used, TensorFlow's ring can.
        implementation=Implementation("RING" if way == HOST else way.upper()),
        bytes_per_pack=RING_BYTES_PER_PACK if size is None else size,
    ).merge(explicit)


def uses_host(strategy, explicit) -> bool:
    """Whether a strategy's workers talk through the host collective.

    Args:
      strategy: a multi-worker strategy.
      explicit: the user's `CommunicationOptions`, or None; what they name is used instead.

    Raises:
      UsageError: TFRUN-105, when the workers have GPUs.
    """
    asked = settings().communication
    if asked == "auto" and not _has_gpu(strategy):
        asked = _without_gpus()
    if asked != HOST or strategy.extended._num_workers == 1:
        return False
    if explicit is not None and explicit.implementation != Implementation.AUTO:
        return False
    if _has_gpu(strategy):
        raise UsageError(
            "TFRUN-105",
            "the host collective is for workers without GPUs, and this one has some",
            where="--communication host",
            expected="auto, ring or nccl",
        )
    return True


def _without_gpus() -> str:
    """What `auto` is between workers without GPUs."""
    if compression.wanted():
        return HOST  # nothing else compresses
    if measured := settings().preferred:
        return measured
    # The host collective has a port of its own on each worker, which firewalls around a cluster
    # that tfrun has not started may not know.
    return HOST if settings().collective_key else "auto"


def settle(strategy, probe: Callable[[Any], bool] | None = None):
    """Decides between NCCL and RING for all workers, and lets the strategy use it.

    NCCL is for GPUs, and only trying shows whether it works (drivers, network interfaces). All
    workers must use the same, so one worker's failure counts for all.

    Args:
      strategy: a multi-worker strategy; all workers must call this.
      probe: tells whether NCCL works here; by default it makes a tiny all-reduce.

    Returns:
      The implementation that is used from now on.
    """
    asked = strategy.extended._communication_options.implementation
    if asked == Implementation.RING or (asked == Implementation.AUTO and not _has_gpu(strategy)):
        return _use(strategy, Implementation.RING)
    works = (probe or nccl_works)(strategy)
    failures = _sum_over_workers(strategy, 0.0 if works else 1.0)
    if failures == 0:
        return _use(strategy, Implementation.NCCL)
    if strategy.extended._is_chief:
        warnings.warn(
            f"NCCL does not work on {failures:.0f} of {strategy.extended._num_workers} workers; "
            "the job goes on with RING, which is slower between GPUs. "
            "--communication ring asks for it without this warning; "
            "NCCL_DEBUG=INFO shows in the workers' logs why NCCL failed.",
            RuntimeWarning,
            stacklevel=3,
        )
    return _use(strategy, Implementation.RING)


def nccl_works(strategy) -> bool:
    """Makes one all-reduce with NCCL; False without a GPU or when it fails."""
    if not _has_gpu(strategy):
        return False
    nccl = CommunicationOptions(
        implementation=Implementation.NCCL, timeout_seconds=PROBE_TIMEOUT_SECONDS
    )

    @tf.function
    def reduce():
        def on_replica():
            return tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([1]), nccl)

        return strategy.run(on_replica)

    try:
        reduce()
        tf.experimental.async_clear_error()
    except tf.errors.OpError as error:
        tf.get_logger().warning("NCCL failed: %s", error)
        return False
    return True


def _has_gpu(strategy) -> bool:
    return strategy.extended._local_device_type == "GPU"


def _sum_over_workers(strategy, value: float) -> float:
    """A sum over the workers' hosts, by RING: it has to work when NCCL does not."""
    total = strategy.extended._host_cross_device_ops.reduce(
        tf.distribute.ReduceOp.SUM,
        tf.identity(value),
        tf.identity(value),
        options=CommunicationOptions(implementation=Implementation.RING),
    )
    return float(strategy.experimental_local_results(total)[0])


def _use(strategy, implementation):
    """Makes `implementation` the default of everything that `strategy` reduces.

    `Options.merge` lets the callers' options win, and the launchers have copies of their own.
    """
    extended = strategy.extended
    chosen = extended._communication_options.merge(
        CommunicationOptions(implementation=implementation)
    )
    extended._communication_options = chosen
    for reducer in (extended._cross_device_ops, extended._host_cross_device_ops):
        reducer._options = chosen
        for launcher in reducer._launchers:
            launcher._options = chosen
    return implementation


def configure_heartbeat(cluster_resolver) -> None:
    """Configures the coordination service before TensorFlow does, with a shorter heartbeat.

    `MultiWorkerMirroredStrategy` configures the service only when nobody has, and offers no way
    to say how long a worker may stay silent.
    """
    eager: Any = context.context()
    if eager.coordination_service is not None:
        return
    cluster = multi_worker_util.normalize_cluster_spec(cluster_resolver.cluster_spec())
    jobs = [job for job in ("chief", "worker") if job in cluster.jobs]
    if cluster_resolver.task_type not in jobs:
        return
    proto: Any = coordination_config_pb2
    eager.configure_coordination_service(
        service_type="standalone",
        service_leader=multi_worker_util.coordination_leader(cluster),
        heartbeat_timeout_in_ms=HEARTBEAT_TIMEOUT_MS,
        coordinated_jobs=[
            proto.CoordinatedJob(name=job, num_tasks=cluster.num_tasks(job)) for job in jobs
        ],
    )
