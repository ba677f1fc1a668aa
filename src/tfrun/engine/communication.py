"""Chooses how workers communicate: the host collective or TensorFlow's, and the size of packs."""

from __future__ import annotations

import tensorflow as tf

from tfrun.engine import compression
from tfrun.engine.tensorflow_collectives import CommunicationOptions, Implementation
from tfrun.job.errors import UsageError
from tfrun.job.settings import settings
from tfrun.job.world import fixed_replicas, world

HOST = "host"
# Measured on two processes, 160 tensors of 100 MB in all: one pack 320 ms, packs of 1 MiB 209,
# 2 MiB 196, 4 MiB 164, 8 MiB 205. 11 MB take the same time in one pack or three.
RING_BYTES_PER_PACK = 4 << 20


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


def uses_host(workers: int, explicit) -> bool:
    """Whether a strategy's workers talk through the host collective.

    Args:
      workers: how many.
      explicit: the user's `CommunicationOptions`, or None; what they name is used instead.

    Raises:
      UsageError: TFRUN-105, when this worker has several GPUs.
    """
    # Asked so that TensorFlow's devices are not made yet: with its own cluster they come later.
    gpus = sum(map(_parts, tf.config.get_visible_devices("GPU")))
    asked = settings().communication
    if asked == "auto":
        asked = _with_gpus(gpus) if gpus else _without_gpus()
    if asked != HOST or (workers == 1 and not fixed_replicas()):
        return False
    if explicit is not None and explicit.implementation != Implementation.AUTO:
        return False
    if gpus > 1:
        raise several_devices(gpus)
    return True


def several_devices(devices: int) -> UsageError:
    """TFRUN-105: the host collective sums one device's gradients for each worker."""
    return UsageError(
        "TFRUN-105",
        f"the host collective is for workers with one device each, and this one has {devices} GPUs",
        where="--communication host",
        expected="auto, ring or nccl",
        fix="Start as many workers as there are GPUs: each gets one. Or leave it out",
    )


def _parts(gpu: tf.config.PhysicalDevice) -> int:
    """How many devices TensorFlow makes of a GPU: the script may divide it."""
    return len(tf.config.get_logical_device_configuration(gpu) or [gpu])


def _with_gpus(gpus: int) -> str:
    """What `auto` is between workers with GPUs: what only the host collective can do asks for it.

    So does a GPU that several workers share, which NCCL refuses. All that is looked at is the same
    on all workers, or they would wait in different collectives.
    """
    own, here = settings(), world()
    asked = compression.wanted() or own.overlap == "on" or own.in_place == "on" or own.replicas
    # On several machines the others may share none.
    shared = own.shares_gpu and here.local_size == here.size > 1
    return HOST if gpus == 1 and (asked or shared) else "auto"


def _without_gpus() -> str:
    """What `auto` is between workers without GPUs."""
    if compression.wanted():
        return HOST  # nothing else compresses
    if measured := settings().preferred:
        return measured
    # Who has started the others of a cluster that is not tfrun's may have done so without tfrun:
    # TensorFlow's ring is what all of them have.
    return HOST if settings().collective_key else "auto"
