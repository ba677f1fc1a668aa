"""`MirroredStrategy`, with the same repairs: several devices of one process."""

from __future__ import annotations

from tensorflow.python.distribute import distribute_lib
from tensorflow.python.distribute import mirrored_strategy as upstream

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
