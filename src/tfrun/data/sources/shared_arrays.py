"""Keeps one copy of arrays for all workers of a machine.

The worker that takes the lock first writes the arrays into a memory file and all map it. The
file has no name, so nothing is left when the processes end, however they end; and it is not under
/dev/shm, of which a container may have 64 MB. Calls are matched by their order: the n-th of a
round is the same data on every worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import itertools
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tensorflow as tf
from keras import tree
from numpy.typing import NDArray

from tfrun.data import errors
from tfrun.job.settings import settings
from tfrun.job.world import World

PAGE = 4096
_FINGERPRINT_ROWS = 16
_calls = itertools.count()
_kept: list[Any] = []


def share_arrays(load: Callable[[], Any], run_dir: str, world: World, *, own: Any = None) -> Any:
    """Returns the arrays that `load` gives, in one copy for the workers of this machine.

    Args:
      load: returns a nest (tuples, dictionaries) of arrays. Called by one worker of the machine.
      run_dir: the job's directory; "" outside a job, where nothing is shared.
      world: this process's place.
      own: this worker's own arrays, if it has them: they must be those that were loaded.

    Returns:
      The same nest of read-only arrays, on pages that all workers have in common. Arrays of
      Python objects are not shared.

    Raises:
      TfrunError: TFRUN-609 where `own` is something else than the shared arrays.
    """
    number = next(_calls)
    if not run_dir or world.local_size == 1:
        return load()
    # Of this very round: an earlier job's process may have had the number that the path tells.
    text = f"{settings().collective_key} {os.path.realpath(run_dir)} {world.round}"
    of = hashlib.sha256(text.encode()).hexdigest()[:24]
    # Workers of other machines may see the same run directory. One file for all rounds.
    lock = Path(run_dir, "shared", f"arrays-{number}-{socket.gethostname()}.json")
    try:
        lock.parent.mkdir(exist_ok=True)
        file = lock.open("a+b", buffering=0)
    except OSError:  # a full disk: each worker has a copy of its own
        return own if own is not None else load()
    with file:
        # A dying process lets go of the lock, so no one waits for a certain rank.
        fcntl.flock(file, fcntl.LOCK_EX)
        state = _noted(file)
        # The one that made the memory file may have died before all could open it.
        is_there = state.get("of") == of and (not state["path"] or Path(state["path"]).exists())
        if not is_there:
            state = {"of": of, **_publish(load(), f"tfrun-{of}", lock.parent)}
            if own is None:
                _give_back()
        result = _opened(state, world.local_size) if state["path"] else None
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write(json.dumps(state).encode())
    if own is not None and _fingerprints(tf.nest.flatten(own)) != state["fingerprints"]:
        raise errors.not_the_same_arrays(str(lock))
    if result is None:
        return own if own is not None else load()
    return result


def _noted(file: BinaryIO) -> dict[str, Any]:
    """What another worker, or an earlier round, has written; nothing if it is not whole."""
    file.seek(0)
    try:
        state = json.loads(file.read())
    except ValueError:
        return {}
    return state if isinstance(state, dict) else {}


def _opened(state: dict[str, Any], users: int) -> Any:
    """Maps the arrays; where the file has a name, the last of the users removes it."""
    arrays = [_mapped(state["path"], entry) for entry in state["arrays"]]
    state["opened"] += 1
    if state["opened"] == users and state["has_name"]:
        Path(state["path"]).unlink()
    numbers = tree.lists_to_tuples(state["structure"])  # JSON has made lists of the tuples
    return tf.nest.map_structure(arrays.__getitem__, numbers)


def _publish(nest: Any, name: str, directory: Path) -> dict[str, Any]:
    """Writes the arrays, each from a page's start on, and returns what the others need to know."""
    arrays: list[NDArray] = tf.nest.flatten(nest)
    state: dict[str, Any] = {"opened": 0, "path": None, "arrays": []}
    state["structure"] = tf.nest.pack_sequence_as(nest, list(range(len(arrays))))
    state["fingerprints"] = _fingerprints(arrays)
    if any(array.dtype.hasobject for array in arrays):
        return state
    offset = 0
    for array in arrays:
        state["arrays"].append({"dtype": array.dtype.str, "shape": array.shape, "offset": offset})
        offset += -(-array.nbytes // PAGE) * PAGE
    file, state["path"], state["has_name"] = _memory_file(name, directory)
    for array, entry in zip(arrays, state["arrays"], strict=True):
        file.seek(entry["offset"])
        np.ascontiguousarray(array).tofile(file)
    file.truncate(max(offset, PAGE))
    file.flush()
    return state


def _give_back() -> None:
    """Has the allocator give the loaded arrays' memory back, which it keeps in a worker."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc
    if trim is not None:
        trim(0)


def _memory_file(name: str, directory: Path) -> tuple[Any, str, bool]:
    """Returns a file, the path under which others can open it, and whether that is a name."""
    if not hasattr(os, "memfd_create"):
        path = directory / name
        return path.open("wb"), str(path), True
    number = os.memfd_create(name)
    file = os.fdopen(number, "wb")
    _kept.append(file)  # the path below leads to this process's open file
    return file, f"/proc/{os.getpid()}/fd/{number}", False


def _mapped(path: str, entry: dict[str, Any]) -> NDArray:
    shape = tuple(entry["shape"])
    if 0 in shape:
        return np.empty(shape, entry["dtype"])
    return np.memmap(path, entry["dtype"], "r", entry["offset"], shape)


def _fingerprints(arrays: list[NDArray]) -> list[str]:
    """Shape, dtype and some rows of each array, evenly spread."""
    found = []
    for array in arrays:
        rows = np.linspace(0, max(len(array) - 1, 0), _FINGERPRINT_ROWS).astype(int)
        content = array[rows] if len(array) else array
        raw = str(content.tolist()).encode() if array.dtype.hasobject else content.tobytes()
        digest = hashlib.sha256(raw).hexdigest()[:16]
        found.append(f"{array.dtype} {array.shape} {digest}")
    return found
