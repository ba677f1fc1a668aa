"""`tfrun.strategy()`: the right `tf.distribute` strategy for the job that this process is in."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfrun.cluster.cluster_spec import ClusterSpec
from tfrun.cluster.tf_config import parse_tf_config
from tfrun.engine import tpu
from tfrun.engine.synchronous import Mirrored
from tfrun.job.errors import TfrunError
from tfrun.job.world import fixed_replicas, world
from tfrun.ps.server_strategy import ParameterServer

Devices = Sequence[str] | None


def strategy(
    kind: str = "auto", *, devices: Devices = None, **options: Any
) -> tf.distribute.Strategy:
    """Returns a strategy for this process.

    Args:
      kind: "one_device", "mirrored" (several devices of this process), "multi_worker"
        (synchronous, all workers of the job), "parameter_server", "tpu", "central_storage"
        (variables on the CPU, computation on all devices); or "auto": what the job's cluster
        asks for, else all GPUs of this process, else its one device.
      devices: the devices to compute on, such as ["GPU:0", "GPU:1"], for one_device, mirrored
        and central_storage. By default all GPUs, or the CPU.
      **options: further arguments of TensorFlow's own strategy class: `communication_options`
        for multi_worker, `variable_partitioner` for parameter_server, `cross_device_ops` for
        mirrored, `tpu` (its name or address) for tpu. And tfrun's `max_staleness` (how many
        updates late a gradient may be applied) for parameter_server.

    Returns:
      A `tf.distribute.Strategy`. Make the model, the optimizer and the metrics in its `scope()`.

    Raises:
      TfrunError: TFRUN-501 for an unknown kind, TFRUN-502 when no TPU answers, TFRUN-503 when the
        kind does not fit the job, TFRUN-201 to 206 when TF_CONFIG is malformed.

    Example:
        ```python
        with tfrun.strategy().scope():
            model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
        ```
    """
    if kind != "auto" and kind not in _KINDS:
        expected = ", ".join(("auto", *_KINDS))
        raise TfrunError("TFRUN-501", f"{kind!r} is not a kind of strategy", expected=expected)
    cluster = parse_tf_config(os.environ.get("TF_CONFIG") or "{}").cluster
    if world().role == "evaluator":  # alone, whatever the others train with
        cluster = ClusterSpec()
        kind = "auto" if kind in ("multi_worker", "parameter_server") else kind
        options = {}
    chosen = _fitting(cluster, devices) if kind == "auto" else kind
    _check_fits(chosen, cluster, devices)
    if devices is not None:
        options["devices"] = list(devices)
    return _KINDS[chosen](**options)


def _fitting(cluster: ClusterSpec, devices: Devices) -> str:
    if cluster.count("ps"):
        return "parameter_server"
    if cluster.trainers > 1 or fixed_replicas():
        return "multi_worker"
    return (
        "mirrored" if len(devices or tf.config.list_physical_devices("GPU")) > 1 else "one_device"
    )


def _check_fits(kind: str, cluster: ClusterSpec, devices: Devices) -> None:
    if kind == "parameter_server" and not cluster.count("ps"):
        raise _misfit(kind, "the job has no parameter servers", "Start it with tfrun --ps 1")
    if kind == "multi_worker" and cluster.count("ps"):
        raise _misfit(kind, "the job has parameter servers", "Start it without --ps")
    alone = ("one_device", "mirrored", "central_storage")
    if kind in alone and cluster.trainers > 1:
        # Each worker would train its own model on all the data, and nobody would notice.
        right = "parameter_server" if cluster.count("ps") else "multi_worker"
        raise _misfit(kind, f"the job has {cluster.trainers} workers", f"Use kind={right!r}")
    if kind in alone and fixed_replicas() > 1:
        reason = f"the job divides its batches among {fixed_replicas()} replicas"
        raise _misfit(kind, reason, "Use kind='multi_worker', or leave out --replicas")
    if devices is not None and kind not in alone:
        raise _misfit(kind, "it finds its devices itself", "Leave out devices")
    if kind == "one_device" and devices is not None and len(devices) != 1:
        raise _misfit(kind, f"{len(devices)} devices were given", "Use kind='mirrored'")


def _misfit(kind: str, reason: str, fix: str) -> TfrunError:
    return TfrunError("TFRUN-503", f"the strategy {kind!r} does not fit: {reason}", fix=fix)


def _one_device(devices: Sequence[str] | None = None) -> tf.distribute.Strategy:
    gpu = "GPU:0" if tf.config.list_physical_devices("GPU") else "CPU:0"
    return tf.distribute.OneDeviceStrategy((devices or [gpu])[0])


def _parameter_server(**options: Any) -> tf.distribute.Strategy:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return ParameterServer(resolver, **options)


def _central_storage(devices: Sequence[str] | None = None) -> tf.distribute.Strategy:
    return tf.distribute.experimental.CentralStorageStrategy(compute_devices=devices)


_KINDS: dict[str, Callable[..., tf.distribute.Strategy]] = {
    "one_device": _one_device,
    "mirrored": Mirrored,
    "multi_worker": tf.distribute.MultiWorkerMirroredStrategy,
    "parameter_server": _parameter_server,
    "tpu": tpu.strategy,
    "central_storage": _central_storage,
}
