"""Distributed iterators of a worker that has one CPU read their data without a detour."""

from __future__ import annotations

import functools

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.distribute import device_util, input_lib

_iterator = input_lib._SingleWorkerOwnedDatasetIterator
_base = input_lib._SingleWorkerDatasetIteratorBase
_spec = input_lib._SingleWorkerDatasetIteratorSpec


def read_directly() -> None:
    """Has a distributed iterator for one CPU of this process be an iterator of the data; once.

    tensorflow/python/distribute/input_lib.py puts a MultiDeviceIterator, which hands elements
    out to several devices, between the data and any worker. With one CPU it hands out nothing,
    takes a millisecond of CPU time a step for it, and in TensorFlow 2.21 the process sometimes
    ends with SIGSEGV, on a thread of `tf_Compute` ("GetNextFromShard was cancelled"), when the
    iterator is dropped while it reads ahead.
    """
    if hasattr(_iterator._make_iterator, "__wrapped__"):
        return
    _iterator._make_iterator = _make_direct(_iterator._make_iterator)
    _base._format_data_list_with_options = _of_one(_base._format_data_list_with_options)
    setattr(_spec, "_component_specs", property(_one_spec(_spec._component_specs.fget)))  # noqa: B010


def is_direct(devices: tuple[str, ...]) -> bool:
    """Whether these are one CPU, that of this process; their names need not be in full."""
    if len(devices) != 1 or not device_util.canonicalize(devices[0]).endswith("/device:CPU:0"):
        return False
    return device_util.canonicalize(devices[0]) == _own_cpu()


def _own_cpu() -> str:
    return device_util.canonicalize("/device:CPU:0")


def _make_direct(original):
    @functools.wraps(original)
    def _make_iterator(self):
        if not is_direct(tuple(self._devices)):
            return original(self)
        with tf.device(self._worker):
            # The detour read a batch ahead too.
            self._iterator = iter(self._dataset.prefetch(1))
        return None

    return _make_iterator


def _of_one(original):
    @functools.wraps(original)
    def _format_data_list_with_options(self, data_list):
        if isinstance(self._iterator, iterator_ops.OwnedIterator):
            return [data_list]
        return original(self, data_list)

    return _format_data_list_with_options


def _one_spec(original):
    @functools.wraps(original)
    def _component_specs(self):
        if is_direct(self._devices):
            return [iterator_ops.IteratorSpec(element_spec=self._element_spec)]
        return original(self)

    return _component_specs
