"""A directory of checkpoints in object storage; the names are those of a directory on disk.

    s3://bucket/job/
      checkpoint, ckpt-500/ckpt.index, …, ckpt-500/manifest.json     as in atomic_store.py
      .lock-job, .agent-NAME                                         leases instead of locks

There is no rename here, so a checkpoint is whole when its manifest is there, which is written last
and has the size and the checksum of each file; what has none is not there, and the next writer
removes it. The files are made in a scratch directory of this machine first. One of a step that is
there already gets a name of its own (`ckpt-500-12`), and then the other one goes: nothing that is
whole is overwritten.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tfrun.checkpoint import manifest, names, side_files
from tfrun.checkpoint.atomic_store import PREFIX, Stored, compose, expired, load
from tfrun.checkpoint.errors import cannot_write, other_writer
from tfrun.checkpoint.manifest import Damaged, Manifest
from tfrun.checkpoint.tf_format import CheckpointLayout
from tfrun.job.errors import TfrunError
from tfrun.storage import lease, scratch
from tfrun.storage.objects import Entry, Objects

LOCK = ".lock-job"  # the lease of the job that writes here
_BEGINNING = "ckpt-"
_log = logging.getLogger("tfrun")
_Found = tuple[str, Manifest | Damaged]


class RemoteStore:
    """Writes and reads the checkpoints of a job; as `atomic_store.Store`.

    Args:
      objects: the storage.
      keep: how many checkpoints to keep, at least 1.
      token: the job's lease of the place, without which nothing becomes visible there; "" where no
        job is held to one.
      state_dir: the job's directory in this machine's memory, for its scratch directory.
      read_only: leave the place as it is.
    """

    def __init__(
        self,
        objects: Objects,
        keep: int = 5,
        *,
        token: str = "",
        state_dir: Path | None = None,
        read_only: bool = False,
    ) -> None:
        assert keep >= 1
        self._objects, self._keep, self._token = objects, keep, token
        self._state_dir, self._read_only = state_dir, read_only
        self._damaged: set[str] = set()
        self._known: dict[tuple[str, Entry], Manifest | Damaged] = {}
        self._unfinished: dict[str, list[str]] = {}  # by the last look
        self._at_once = Objects(objects.url, patience=0.0)
        self._writing = threading.Lock()

    def write(
        self,
        step: int,
        meta: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        layout: CheckpointLayout | None = None,
    ) -> str:
        """Writes a checkpoint and returns its URL; the storage has it then.

        Args: as those of `Store.write`.

        Raises:
          TfrunError: TFRUN-701, where this machine has no room for it, or another job has taken the
            place; TFRUN-704, where the storage refuses. No checkpoint looks whole for it.
          ValueError, TypeError: `meta` is not JSON, or an array is missing or cannot be saved.
        """
        assert not self._read_only
        with self._writing:
            self._check_lease()
            there = self._look()
            self._tidy()
            sequence = max((one.sequence for _, one in _readable(there)), default=-1) + 1
            name = f"{_BEGINNING}{step}"
            before = [one for one, found in there if _step_of(found) == step or one == name]
            name = f"{name}-{sequence}" if before else name
            try:
                with scratch.within(self._state_dir) as folder:
                    compose(folder, step, sequence, meta, arrays, layout)
                    self._upload(name, folder, has_layout=layout is not None)
            except OSError as error:
                raise cannot_write(scratch.folder(self._state_dir), error) from error
            self._remove_old(before)
            return self._objects.at(name)

    def newest(self) -> Stored | None:
        """Returns the newest checkpoint that is whole, or None.

        A damaged one is passed over with a warning that names the file.

        Raises:
          TfrunError: TFRUN-704.
          OSError: this machine has no room for a copy.
        """
        there = self._look()
        for name, found in there:
            if isinstance(found, Damaged):
                self._pass_over(name, found)
        for name, found in reversed(_readable(there)):
            with scratch.within(self._state_dir) as folder:
                try:
                    for file in found.files:
                        self._objects.fetch(f"{name}/{file}", folder / file)
                    manifest.verify(folder, found)
                    return load(folder, found, self._objects.at(name))
                except FileNotFoundError:
                    if f"{name}/{manifest.NAME}" not in self._objects.list(name):
                        return self.newest()  # too old, and gone: there are newer ones
                    missing = sorted(set(found.files) - {path.name for path in folder.iterdir()})
                    self._pass_over(name, Damaged(f"{self._objects.at(name)}: {missing} missing"))
                except Damaged as error:
                    shown = str(error).replace(str(folder), self._objects.at(name))
                    self._pass_over(name, Damaged(shown))
        return None

    def list(self) -> Sequence[tuple[PurePosixPath, Manifest]]:
        """Returns the checkpoints, the oldest first, by their manifests alone."""
        return [(PurePosixPath(name), found) for name, found in _readable(self._look())]

    def meta_of(self, step: int) -> dict[str, Any]:
        """Returns what `write` got as `meta` for a step, without a look at the arrays; else {}."""
        found = [name for name, one in _readable(self._look()) if one.step == step]
        try:
            data = self._objects.read(f"{found[-1]}/{side_files.STATE}") if found else b"{}"
            return json.loads(data).get("meta", {})
        except (FileNotFoundError, ValueError):
            return {}

    def names(self) -> Sequence[str]:
        """Returns the names of all that have a manifest, readable or not."""
        return [name for name, _ in self._look()]

    def close(self) -> None:
        """Nothing is held: the place is the job's, by the lease of its launcher."""

    def _upload(self, name: str, folder: Path, *, has_layout: bool) -> None:
        files = sorted(path for path in folder.iterdir() if path.name != manifest.NAME)
        try:
            for path in files:
                self._objects.put(f"{name}/{path.name}", path)
            arrived = self._objects.list(f"{name}/")
            for path in files:
                entry = arrived.get(f"{name}/{path.name}")
                if entry is None or entry.size != path.stat().st_size:
                    raise self._objects.refused(f"{name}/{path.name} has not arrived whole")
        except TfrunError:
            with contextlib.suppress(TfrunError):
                self._at_once.remove(f"{name}/{path.name}" for path in files)
            raise
        # Seconds or minutes have passed. What is there may be another job's now: it is left.
        self._check_lease()
        self._objects.put(f"{name}/{manifest.NAME}", folder / manifest.NAME)
        if has_layout:
            pointer = names.pointer_to(Path(name) / PREFIX)
            self._objects.write(names.POINTER, pointer)
        self._damaged.discard(name)

    def _check_lease(self) -> None:
        """Raises TFRUN-701 where another job has taken the place."""
        if self._token and not lease.is_held(self._objects, LOCK, self._token):
            raise other_writer(self._objects.url)

    def _tidy(self) -> None:
        """Removes what writers have left that died in the midst."""
        for name, files in self._unfinished.items():
            _log.info("%s was not written to its end, and is removed.", self._objects.at(name))
            self._objects.remove(f"{name}/{file}" for file in files)

    def _remove_old(self, before: Sequence[str]) -> None:
        found = [name for name in reversed(self.names()) if name not in before]
        for name in [*before, *expired(found, self._damaged, self._keep)]:
            try:
                first = f"{name}/{manifest.NAME}"  # without that it is not there
                self._objects.remove([first, *self._objects.list(f"{name}/")])
            except TfrunError as error:
                _log.warning("The old checkpoint %s cannot be removed: %s", name, error)

    def _pass_over(self, name: str, error: Exception) -> None:
        self._damaged.add(name)
        _log.warning("A damaged checkpoint is passed over: %s", error)

    def _look(self) -> list[_Found]:
        """Returns those that have a manifest, the oldest first; an unreadable one is the oldest."""
        found: list[_Found] = []
        known, files = {}, {}
        for path, entry in self._objects.list(_BEGINNING).items():
            name, _, file = path.partition("/")
            files.setdefault(name, []).append(file)
            if file != manifest.NAME:
                continue
            one = self._known.get((path, entry))
            if one is None:
                try:
                    one = manifest.parse(self._objects.read(path), self._objects.at(path))
                except FileNotFoundError:
                    continue  # it has just been removed
                except Damaged as error:
                    one = error
            known[path, entry] = one
            found.append((name, one))
            if isinstance(one, Damaged):
                self._damaged.add(name)
        self._known = known
        self._unfinished = {name: of for name, of in files.items() if manifest.NAME not in of}
        return sorted(found, key=lambda item: getattr(item[1], "sequence", -1))


def _readable(found: Sequence[_Found]) -> list[tuple[str, Manifest]]:
    return [(name, one) for name, one in found if isinstance(one, Manifest)]


def _step_of(found: Manifest | Damaged) -> int | None:
    return found.step if isinstance(found, Manifest) else None
