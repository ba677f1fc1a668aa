"""Checkpoints on disk of the running training: written by the chief while it goes on."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tfrun.checkpoint import durable_files, writable_directory
from tfrun.checkpoint.atomic_store import Store
from tfrun.checkpoint.background_writer import BackgroundWriter
from tfrun.checkpoint.names import look
from tfrun.checkpoint.tf_format import CheckpointLayout
from tfrun.checkpoint.when_due import Every, Moment, due, parse
from tfrun.job import reports
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.state import finished_calls, no_room, snapshot
from tfrun.state.snapshot import Place, Snapshot

END_SECONDS = 30.0  # how long the end of the script waits for the last one
LAYOUTS = 8  # of so many models TensorFlow's part is remembered

_log = logging.getLogger("tfrun")
_durable: list[Durable | None] = []
_making = threading.Lock()
_fetched: list[Place] = []  # what this process has read from the disk


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a checkpoint is about, for TensorFlow: `tf.train.Checkpoint(model=…, optimizer=…)`.

    Attributes:
      model: a Keras model, or a list or dictionary of them.
      optimizer: likewise.
      variables: those of them by name, as a snapshot names them.
    """

    model: Any
    optimizer: Any
    variables: Mapping[str, Any]


class Durable:
    """Writes what is due to the job's checkpoint directory."""

    def __init__(self, directory: Path, every: Every, keep: int) -> None:
        self._directory, self._every = directory, every
        self._store = Store(directory, keep)
        self._writer = BackgroundWriter(
            self._store,
            _log.warning,
            on_written=lambda step: channel.emit(reports.CheckpointWritten(step=step)),
        )
        self._last = Moment(now=time.monotonic(), step=0)
        self._call = self._asked = 0  # the training and the step that were asked about last
        self._layouts: dict[tuple[int, ...], tuple[Any, CheckpointLayout]] = {}
        self._unsaved: dict[str, Path] = {}
        atexit.register(self._writer.close, END_SECONDS)

    def is_due(self, call: int, step: int, *, epoch_ended: bool) -> bool:
        """Whether a checkpoint should be written after this step of this training."""
        self._asked = step
        if call != self._call:
            self._call = call
            if step <= self._last.step:  # another model, which counts for itself
                self._last = self._last._replace(step=step - 1)
        at = Moment(now=time.monotonic(), step=step)
        return due(self._every, at=at, epoch_ended=epoch_ended, last=self._last)

    def resumes(self, call: int, step: int) -> None:
        """A training goes on here: the next checkpoint is due by the newest one on the disk."""
        on_disk = (manifest.step for _, manifest in self._store.list())
        newest = max((one for one in on_disk if one <= step), default=step)
        self._call, self._last = call, self._last._replace(step=newest)

    def submit(self, what: Saved, kept: Snapshot) -> None:
        """Hands a state over to be written; returns at once."""
        step: int = kept.values["iterations"]
        self._last = Moment(now=time.monotonic(), step=self._asked)
        # An optimizer that has been built since the state was kept has nothing in it.
        names = {name: v for name, v in what.variables.items() if name in kept.arrays}
        self._writer.submit(step, kept.meta, kept.arrays, self._layout(what, names))

    def prepare(self, what: Saved) -> None:
        """Looks at the objects now, so that another thread need not do it while they change."""
        self._layout(what, dict(what.variables))

    def save_now(self, what: Saved, kept: Snapshot, seconds: float) -> str:
        """Writes a state and waits for the disk, at most so many seconds; returns what failed."""
        if kept.place in _fetched:
            return ""
        self.submit(what, kept)
        if self._writer.flush(seconds):
            return ""
        return self._writer.problem or f"the disk takes more than {seconds:.0f} s"

    def keep_call(self, path: Path) -> str:
        """Keeps what a training has left, beside the checkpoints; returns what failed.

        Args:
          path: the file among the snapshots; where there was no room for it, it is not there.
        """
        target = self._directory / snapshot.CALLS / path.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            durable_files.copy(path, target)
        except OSError as error:
            self._unsaved[path.name] = path
            if path.exists():
                _log.warning("The result of a fit call is not saved to %s: %s.", target, error)
            return f"{target}: {error.strerror}"
        self._unsaved.pop(path.name, None)
        return ""

    def keep_missing_call(self, path: Path) -> None:
        """Keeps what another chief has kept on another machine's disk."""
        if not (self._directory / snapshot.CALLS / path.name).exists():
            self.keep_call(path)

    def keep_calls(self) -> str:
        """Tries again what `keep_call` could not do; returns what fails still."""
        return next(filter(None, map(self.keep_call, tuple(self._unsaved.values()))), "")

    def _layout(self, what: Saved, names: dict[str, Any]) -> CheckpointLayout:
        key = tuple(map(id, names.values()))
        if key not in self._layouts:
            if len(self._layouts) == LAYOUTS:
                self._layouts.clear()
            made = CheckpointLayout.of(what.model, what.optimizer, names=names)
            self._layouts[key] = what, made  # as long as `what` lives, these numbers are its own
        return self._layouts[key][1]


def durable() -> Durable | None:
    """The job's checkpoints; None on other workers than the chief, and when there are none."""
    if _durable:  # asked at each step
        return _durable[0]
    with _making:
        if not _durable:
            mine, made = settings(), None
            if mine.checkpoint_dir and world().is_chief:
                every = parse(mine.checkpoint_every)
                made = Durable(Path(mine.checkpoint_dir), every, mine.keep)
            _durable.append(made)
        return _durable[0]


def forget() -> None:
    """This worker has become the chief, or is it no more."""
    _durable.clear()


def fetch_into(folder: Path, *, rather_disk: bool = False) -> None:
    """Brings what an earlier job in this run directory has saved into the snapshots' folder.

    Does nothing where there are snapshots: they are newer.

    Args:
      folder: the snapshots' folder.
      rather_disk: nobody keeps snapshots there but this function: it takes the newest checkpoint.

    Raises:
      TfrunError: TFRUN-702 when there is no room for it: nobody wants to begin anew unasked.
      UsageError: TFRUN-701 when the job has only begun and could save nothing there.
    """
    directory = settings().checkpoint_dir
    if not directory or not world().is_chief:
        return
    if world().round == 0:
        writable_directory.check_or_tell(
            Path(directory), lambda text: channel.emit(reports.WorkerNotice(text=text))
        )
    there = snapshot.latest(folder) is not None or snapshot.last_call(folder) >= 0
    if there and not rather_disk:
        return
    for path in () if there else snapshot.calls(Path(directory, snapshot.CALLS)).values():
        with contextlib.suppress(OSError):
            durable_files.copy(path, folder / path.name)
    stored = Store(directory, read_only=True).newest()
    if stored is None and (damaged := look(Path(directory))):
        _tell_of_damaged(Path(directory), [path.name for path, _ in damaged])
    if stored is None or "place" not in stored.meta:
        return
    kept = Snapshot.of(stored.meta, stored.arrays)
    try:
        snapshot.write_file(snapshot.path_of(folder, kept.place), kept)
    except (OSError, SafetensorError) as error:
        raise no_room.not_kept(folder, f"the checkpoint {stored.path.name}", error) from error
    _fetched.append(kept.place)
    _log.info("Going on from the checkpoint %s.", stored.path)


def _tell_of_damaged(directory: Path, found: Sequence[str]) -> None:
    what = f"the checkpoint {found[0]}" if len(found) == 1 else f"{len(found)} checkpoints"
    text = (
        f"{what} in {directory}, and none of them can be read: the training begins at the "
        "beginning; --fresh puts them aside"
    )
    channel.emit(reports.DoubtRaised(code="TFRUN-703", text=text, alone=True))


def bring_back(path: Path) -> None:
    """Copies the file of a finished call from the disk where the memory does not hold it."""
    if world().is_chief and not path.exists() and (stored := finished_calls.on_disk(path.name)):
        with contextlib.suppress(OSError):
            durable_files.copy(stored, path)
