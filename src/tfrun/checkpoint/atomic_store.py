"""A directory of checkpoints, each of which is complete or absent.

    checkpoints/
      checkpoint            TensorFlow's own pointer to the newest one
      ckpt-500/
        ckpt.index, ckpt.data-00000-of-00001    the model and the optimizer, as TensorFlow writes
        state.json, extra.safetensors           everything else
        manifest.json                           sizes and checksums of all, written last

A checkpoint is written under a temporary name, with every file synced, and then renamed. After
a crash the temporary ones are removed by the next writer. There is one writer (lock.py), and any
number of readers.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfrun.checkpoint import durable_files, manifest, names, side_files, tf_format
from tfrun.checkpoint.errors import cannot_write, other_writer
from tfrun.checkpoint.manifest import Damaged, Manifest
from tfrun.checkpoint.tf_format import CheckpointLayout
from tfrun.job import files
from tfrun.job.lock import WriterLock

_log = logging.getLogger("tfrun")
PREFIX = "ckpt"  # within a checkpoint, the common beginning of TensorFlow's files


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A checkpoint that was read and is whole.

    Attributes:
      step: the steps that the job had completed.
      path: its directory; one in object storage has none, and was read through a copy.
      where: its path or URL, for people.
      meta, arrays: what `write` got; the arrays may be read-only.
    """

    step: int
    path: Path
    where: str
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]


class Store:
    """Writes and reads the checkpoints of a job.

    Opening never fails: a directory that cannot be written can still be read.

    Args:
      directory: on any mounted file system, of this machine or shared.
      keep: how many checkpoints to keep, at least 1.
      read_only: leave the directory as it is, and the place of the one writer to another process.
    """

    def __init__(self, directory: Path | str, keep: int = 5, *, read_only: bool = False) -> None:
        assert keep >= 1
        self.directory, self._keep, self._read_only = Path(directory), keep, read_only
        self._lock = WriterLock(self.directory / ".lock")
        self._damaged: set[str] = set()
        self._writing = threading.Lock()
        if read_only:
            return
        try:
            self._open_for_writing()
        except OSError as error:
            _log.debug("%s cannot be written now: %s", self.directory, error)

    def write(
        self,
        step: int,
        meta: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        layout: CheckpointLayout | None = None,
    ) -> Path:
        """Writes a checkpoint and returns its directory; the disk has it then.

        Args:
          step: the steps that the job has completed. One of the same step is replaced.
          meta: what JSON can hold.
          arrays: name → value. Those with a name in `layout.variables` become TensorFlow's part
            of the checkpoint, the others the side file.
          layout: the model and the optimizer; without it there is no TensorFlow part.

        Raises:
          TfrunError: TFRUN-701, when the directory cannot be written or the disk is full. There
            is no trace of the attempt then, and the next one may succeed.
          ValueError, TypeError: `meta` is not JSON, or an array is missing or cannot be saved.
        """
        assert not self._read_only
        with self._writing:
            try:
                if not self._open_for_writing():
                    raise other_writer(self.directory)
                target = self._write(step, dict(meta), arrays, layout)
            except OSError as error:
                raise cannot_write(self.directory, error) from error
            self._remove_old()
            return target

    def newest(self) -> Stored | None:
        """Returns the newest checkpoint that is whole, or None.

        A damaged one is passed over with a warning that names the file.
        """
        whole = []
        for path, found in reversed(self._look()):
            if isinstance(found, Manifest):
                whole.append((path, found))
            elif path.exists():  # perhaps the newest: nobody knows
                self._pass_over(path, found)
        for path, found in whole:
            try:
                manifest.verify(path, found)
                return load(path, found, str(path))
            except (Damaged, OSError) as error:
                if not path.exists():  # the writer has removed it as too old: there are newer ones
                    return self.newest()
                self._pass_over(path, error)
        return None

    def list(self) -> Sequence[tuple[Path, Manifest]]:
        """Returns the checkpoints, the oldest first, by their manifests alone."""
        return [(path, found) for path, found in self._look() if isinstance(found, Manifest)]

    def meta_of(self, step: int) -> dict[str, Any]:
        """Returns what `write` got as `meta` for a step, without a look at the arrays; else {}."""
        found = [path for path, manifest in self.list() if manifest.step == step]
        try:
            return side_files.read_state(found[-1] / side_files.STATE)["meta"] if found else {}
        except (OSError, ValueError, KeyError):
            return {}

    def close(self) -> None:
        """Lets another process write; unless a write is going on, which ends with this process."""
        if self._writing.acquire(blocking=False):
            self._lock.release()
            self._writing.release()

    def _write(
        self, step: int, meta: dict[str, Any], arrays: Mapping[str, np.ndarray], layout: Any
    ) -> Path:
        target = names.checkpoint(self.directory, step)
        new = names.temporary(target)
        sequence = max((found.sequence for _, found in self.list()), default=-1) + 1
        try:
            new.mkdir()
            compose(new, step, sequence, meta, arrays, layout)
            durable_files.sync(new)
            # All that needs space on the disk is done before anything becomes visible.
            with contextlib.ExitStack() as at_the_end:
                if layout:
                    pointer = at_the_end.enter_context(files.whole(self.directory / names.POINTER))
                    durable_files.write_synced(pointer, names.pointer_to(target / PREFIX))
                names.publish(new, target)
            durable_files.sync(self.directory)
            self._damaged.discard(target.name)
        finally:
            durable_files.remove(new)
        return target

    def _open_for_writing(self) -> bool:
        """Returns whether this process is the writer; removes what a dead one has left."""
        self.directory.mkdir(parents=True, exist_ok=True)
        had_it = self._lock.exclusive
        if not self._lock.acquire():
            return False
        # Without locks, what looks left behind may be another writer's.
        if self._lock.exclusive and not had_it:
            names.tidy(self.directory)
        return True

    def _remove_old(self) -> None:
        found = [path.name for path, _ in reversed(self._look())]
        for name in expired(found, self._damaged, self._keep):
            try:
                names.take_away(self.directory / name)
            except OSError as error:
                _log.warning("The old checkpoint %s cannot be removed: %s", name, error)

    def _pass_over(self, path: Path, error: Exception) -> None:
        self._damaged.add(path.name)
        _log.warning("A damaged checkpoint is passed over: %s", error)

    def _look(self) -> Sequence[tuple[Path, Manifest | Damaged]]:
        found = names.look(self.directory)
        self._damaged.update(path.name for path, read in found if isinstance(read, Damaged))
        return found


def compose(
    new: Path,
    step: int,
    sequence: int,
    meta: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    layout: CheckpointLayout | None,
) -> Manifest:
    """Writes the files of a checkpoint into an empty directory, its manifest last.

    Args:
      new: the directory.
      step: see `Store.write`, as for the rest.
      sequence: how many checkpoints were written before this one.
      meta: likewise.
      arrays: likewise.
      layout: likewise.

    Raises:
      OSError: there is no room, or no right.
      ValueError, TypeError: as `Store.write`.
    """
    keys = dict(layout.keys) if layout else {}
    others = {name: value for name, value in arrays.items() if name not in keys}
    if layout:
        layout.write(new / PREFIX, arrays, count=sequence + 1)
        for path in new.iterdir():
            durable_files.sync(path)
    side_files.write(new, {"meta": dict(meta), "keys": keys}, others)
    files = manifest.describe(new)
    made = Manifest(step=step, sequence=sequence, time=time.time(), files=files)
    manifest.write(new, made)
    return made


def load(path: Path, found: Manifest, where: str) -> Stored:
    """Returns the checkpoint in a directory that has been verified.

    Args:
      path: the directory.
      found: its manifest.
      where: it is, for people.

    Raises:
      OSError: it cannot be read.
    """
    state, arrays = side_files.read(path)
    if state["keys"]:
        arrays |= tf_format.read(path / PREFIX, state["keys"])
    return Stored(step=found.step, path=path, where=where, meta=state["meta"], arrays=arrays)


def expired(newest_first: Sequence[str], damaged: Collection[str], keep: int) -> list[str]:
    """Returns those that have `keep` newer ones which are not known to be damaged.

    A damaged one does not count, so what is good is never removed in favour of what is not.

    Args:
      newest_first: all checkpoints.
      damaged: those that did not verify.
      keep: at least 1.
    """
    good, found = 0, []
    for name in newest_first:
        if good >= keep:
            found.append(name)
        good += name not in damaged
    return found
