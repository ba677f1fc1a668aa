"""`MirroredStrategy`, with the same repairs: several devices of one process."""

from __future__ import annotations

import functools
from typing import Any

from tensorflow.python.distribute import distribute_lib
from tensorflow.python.distribute import mirrored_strategy as upstream
from tensorflow.python.eager import context

from tfrun.engine.synchronous import SynchronousExtended, SynchronousStrategy


class MirroredExtended(SynchronousExtended, upstream.MirroredExtended):
    """Everything that is TensorFlow's own, and what tfrun changes in it."""


class Mirrored(SynchronousStrategy, upstream.MirroredStrategy):
    """Synchronous training on several devices, with the numbers of one.

    Takes the arguments of `tf.distribute.MirroredStrategy` and is one.
    """

    def __init__(self, devices=None, cross_device_ops=None):
        extended = MirroredExtended(self, devices=devices, cross_device_ops=cross_device_ops)
        # Not upstream's __init__: it would make upstream's `extended`.
        distribute_lib.Strategy.__init__(self, extended)


def mirror_own_devices() -> None:
    """Has `MirroredStrategy()` take the devices of this process; once.

    Once workers are connected TensorFlow lists the devices of all of them, and a variable on
    another worker's is a segmentation fault (tensorflow/python/distribute/mirrored_strategy.py,
    all_local_devices).
    """
    original = upstream.all_local_devices
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def all_local_devices(num_gpus=None):
        eager: Any = context.context()
        devices = original()
        server = eager._collective_ops_server_def or eager._server_def
        if server is not None:
            own = f"/job:{server.job_name}/replica:0/task:{server.task_index}/"
            devices = [device for device in devices if device.name.startswith(own)]
        return devices if num_gpus is None else devices[:num_gpus]

    upstream.all_local_devices = all_local_devices
