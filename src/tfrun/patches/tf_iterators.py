"""Distributed iterators: without a detour, without a thread that tunes nothing, with a clock."""

from __future__ import annotations

import functools

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.distribute import device_util

from tfrun.data.order import repeatable
from tfrun.engine import step_clock


def end_at_once(original):
    """The per-device half of a distributed iterator runs without a tuning thread.

    tensorflow/python/data/ops/multi_device_iterator_ops.py gives that half no options, whatever
    the dataset's are. The thread looks for better buffer sizes at growing intervals, up to a
    minute: a dropped iterator stalled for as long. There is nothing to tune in it: a generator
    and a prefetch of a fixed size.
    """

    def _create_device_dataset(*args, **kwargs):
        options = tf.data.Options()
        options.autotune.enabled = False
        return original(*args, **kwargs).with_options(options)

    return _create_device_dataset


def read_directly(original):
    """A distributed iterator for one CPU of this process is an iterator of the data.

    tensorflow/python/distribute/input_lib.py puts a MultiDeviceIterator, which hands elements
    out to several devices, between the data and any worker. With one CPU it hands out nothing,
    takes a millisecond of CPU time a step for it, and in TensorFlow 2.21 the process sometimes
    ends with SIGSEGV, on a thread of `tf_Compute` ("GetNextFromShard was cancelled"), when the
    iterator is dropped while it reads ahead.
    """

    def _make_iterator(self):
        if not _is_direct(tuple(self._devices)):
            return original(self)
        with tf.device(self._worker):
            # The detour read a batch ahead too. Where reading draws from a layer's seeds that is
            # seen: TensorFlow's own rebatching is a batch ahead, which is what plain Keras is.
            draws = repeatable.draws_from_layers(self._dataset)
            self._iterator = iter(self._dataset if draws else self._dataset.prefetch(1))
        return None

    return _make_iterator


def give_what_is_read(original):
    """What such an iterator gives is for its one device."""

    def _format_data_list_with_options(self, data_list):
        if isinstance(self._iterator, iterator_ops.OwnedIterator):
            return [data_list]
        return original(self, data_list)

    return _format_data_list_with_options


def specify_directly(original):
    """And it says so of itself, to a `tf.function` that takes it."""

    def _component_specs(self):
        if _is_direct(tuple(self._devices)):
            return [iterator_ops.IteratorSpec(element_spec=self._element_spec)]
        return original(self)

    return _component_specs


@functools.lru_cache(maxsize=64)  # each step asks, and TensorFlow lists all devices to tell
def _is_direct(devices: tuple[str, ...]) -> bool:
    """Whether these are one CPU, that of this process; their names need not be in full."""
    if len(devices) != 1 or not device_util.canonicalize(devices[0]).endswith("/device:CPU:0"):
        return False
    return device_util.canonicalize(devices[0]) == device_util.canonicalize("/device:CPU:0")


def measure_waiting(original):
    """The clock of steps measures how long distributed iterators wait for other workers.

    tensorflow/python/distribute/input_lib.py has no hook between a worker's own batch and the
    question to all of them.
    """

    def _calculate_replicas_with_values(strategy, input_workers, optional_list):
        clock = step_clock.of(strategy)
        if clock is None:
            return original(strategy, input_workers, optional_list)
        own = [v.has_value() for optionals in optional_list for v in optionals]
        ask = functools.partial(original, strategy, input_workers, optional_list)
        return step_clock.timed(clock.times.waited_for_input, own, ask)

    return _calculate_replicas_with_values
