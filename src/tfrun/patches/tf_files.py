"""Files that TensorFlow and h5py write for a script: each worker's own, as those of `open`.

See process/files.
"""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf
from tensorflow.python.lib.io import file_io

from tfrun.process.files.install import left_open, own_version


def write_own_records(original):
    """`tf.io.TFRecordWriter` writes a file of the worker's own."""

    def __init__(self, path, options=None):
        own = own_version(path, sys._getframe(1))
        original(self, own.place if own else path, options)
        self._tfrun_version = own

    return __init__


def write_own_file(original):
    """`tf.io.gfile.GFile` does, when it is first written to."""

    def _prewrite_check(self):
        frame, path = sys._getframe(1), self._FileIO__name
        while frame and frame.f_code.co_filename == file_io.__file__:
            frame = frame.f_back
        anew = not self._writable_file and self._FileIO__mode in ("w", "wb")
        own = own_version(path, frame) if anew else None
        if own is None:
            return original(self)
        own.is_text = True
        self._FileIO__name = own.place
        try:
            original(self)
        finally:
            self._FileIO__name = path
        self._tfrun_version = own

    return _prewrite_check


def write_own_hdf5(original):
    """`h5py.File` does; HDF5's locks would refuse it to the second worker."""

    def __init__(self, name, mode="r", driver=None, *args, **options):
        wanted = {"w": "w", "w-": "x", "x": "x", "a": "a", "r+": "r+"}.get(mode)
        own = None
        if wanted and driver is None:
            own = own_version(name, sys._getframe(1), wanted)
        if own is None:
            original(self, name, mode, driver, *args, **options)
            return
        own.is_kept = True
        # As an object: HDF5 wants the real path of what it opens itself.
        original(self, own, "r+" if own.begun else "w", driver, *args, **options)
        self._tfrun_version = own
        left_open(self)

    return __init__


def write_own_contents(original):
    """`tf.io.write_file` does, where it is no part of a graph."""

    def write_file(filename, contents, name=None):
        given = isinstance(filename, str) and tf.executing_eagerly()
        own = own_version(filename, sys._getframe(1)) if given else None
        if own is None:
            return original(filename, contents, name)
        with own:
            return original(own.place, contents, name)

    return write_file


def show_own_file(original):
    """What is flushed is seen."""

    def flush(self):
        original(self)
        if own := getattr(self, "_tfrun_version", None):
            own.show()

    return flush


def give_name(original):
    """Once it is closed, it gets its name."""

    def close(self):
        original(self)
        _end(self)

    return close


def give_name_at_exit(original):
    """So it does at the end of a `with` block that calls no `close`."""

    def __exit__(self, *error):
        result = original(self, *error)
        _end(self)
        return result

    return __exit__


def _end(writer: Any) -> None:
    if own := getattr(writer, "_tfrun_version", None):
        writer._tfrun_version = None
        own.close()
