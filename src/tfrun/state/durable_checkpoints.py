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
from tfrun.checkpoint.atomic_store import Store, Stored
from tfrun.checkpoint.background_writer import BackgroundWriter
from tfrun.checkpoint.names import look
from tfrun.checkpoint.remote_directory import RemoteDirectory
from tfrun.checkpoint.remote_store import RemoteStore
from tfrun.checkpoint.tf_format import CheckpointLayout
from tfrun.checkpoint.when_due import Every, Moment, due, parse
from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings
from tfrun.job.world import world
from tfrun.process import channel
from tfrun.state import finished_calls, no_room, snapshot
from tfrun.state.kept_calls import LocalCalls, RemoteCalls
from tfrun.state.snapshot import Place, Snapshot
from tfrun.storage.url import is_url

READ_SECONDS = 180.0  # that a storage which does not answer is asked for the state to go on from
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
    """Writes what is due to the job's checkpoint directory.

    Attributes:
      calls: keeps what finished trainings have left there.
    """

    def __init__(self, directory: Path | str, every: Every, keep: int, lease: str = "") -> None:
        """Args:
        directory: where; a path, or the URL of a place in object storage.
        every: how often.
        keep: how many.
        lease: by what the job's lease of a place in object storage shows.
        """
        self._every = every
        self.calls: LocalCalls | RemoteCalls
        self._store: Store | RemoteStore
        if isinstance(directory, str) and is_url(directory):
            remote = RemoteDirectory(directory)
            self._store = remote.store(keep, token=lease, state_dir=settings().state_path)
            self.calls = RemoteCalls(remote)
        else:
            self._store = Store(directory, keep)
            self.calls = LocalCalls(Path(directory, snapshot.CALLS))
        self._writer = BackgroundWriter(
            self._store,
            _log.warning,
            on_written=lambda step: channel.emit(reports.CheckpointWritten(step=step)),
        )
        self._last = Moment(now=time.monotonic(), step=0)
        self._number = self._asked = 0  # the training and the step that were asked about last
        self._layouts: dict[tuple[int, ...], tuple[Any, CheckpointLayout]] = {}
        atexit.register(self.calls.close, END_SECONDS)
        atexit.register(self._writer.close, END_SECONDS)

    def is_due(self, call: int, step: int, *, epoch_ended: bool) -> bool:
        """Whether a checkpoint should be written after this step of this training."""
        self._asked = step
        if call != self._number:
            self._number = call
            if step <= self._last.step:  # another model, which counts for itself
                self._last = self._last._replace(step=step - 1)
        at = Moment(now=time.monotonic(), step=step)
        return due(self._every, at=at, epoch_ended=epoch_ended, last=self._last)

    def resumes(self, call: int, step: int) -> None:
        """A training goes on here: the next checkpoint is due by the newest one on the disk."""
        on_disk: list[int] = []
        with contextlib.suppress(TfrunError):  # then it is due a little later than it would be
            on_disk = [manifest.step for _, manifest in self._store.list()]
        newest = max((one for one in on_disk if one <= step), default=step)
        self._number, self._last = call, self._last._replace(step=newest)

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
                made = Durable(mine.checkpoint_dir, every, mine.keep, mine.checkpoint_lease)
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
      TfrunError: TFRUN-702 when there is no room for it, TFRUN-704 when object storage cannot
        be asked: nobody wants to begin anew unasked.
      UsageError: TFRUN-701, or TFRUN-704, when the job has only begun and could save nothing there.
    """
    directory = settings().checkpoint_dir
    if not directory or not world().is_chief:
        return
    if world().round == 0:
        writable_directory.check_or_tell(
            directory, lambda text: channel.emit(reports.WorkerNotice(text=text))
        )
    there = snapshot.latest(folder) is not None or snapshot.last_call(folder) >= 0
    if there and not rather_disk:
        return
    stored, found = _newest(directory, folder, with_calls=not there)
    if stored is None and found:
        _tell_of_damaged(directory, found)
    if stored is None or "place" not in stored.meta:
        return
    kept = Snapshot.of(stored.meta, stored.arrays)
    try:
        snapshot.write_file(snapshot.path_of(folder, kept.place), kept)
    except (OSError, SafetensorError) as error:
        raise no_room.not_kept(folder, f"the checkpoint {stored.where}", error) from error
    _fetched.append(kept.place)
    _log.info("Going on from the checkpoint %s.", stored.where)


def _newest(
    directory: str, folder: Path, *, with_calls: bool
) -> tuple[Stored | None, Sequence[str]]:
    """The newest checkpoint that is whole, and what there is; brings finished calls to `folder`."""
    if is_url(directory):
        remote = RemoteDirectory(directory, patience=READ_SECONDS)
        store = remote.store(state_dir=settings().state_path, read_only=True)
        try:
            for name in remote.calls() if with_calls else ():
                remote.fetch_call(name, folder / name)
            return store.newest(), store.names()
        except OSError as error:
            raise no_room.not_kept(folder, f"what is saved in {directory}", error) from error
    for path in snapshot.calls(Path(directory, snapshot.CALLS)).values() if with_calls else ():
        with contextlib.suppress(OSError):
            durable_files.copy(path, folder / path.name)
    stored = Store(directory, read_only=True).newest()
    return stored, [path.name for path, _ in look(Path(directory))]


def _tell_of_damaged(directory: str, found: Sequence[str]) -> None:
    what = f"the checkpoint {found[0]}" if len(found) == 1 else f"{len(found)} checkpoints"
    text = (
        f"{what} in {directory}, and none of them can be read: training starts from the "
        "beginning; --fresh puts them aside"
    )
    channel.emit(reports.DoubtRaised(code="TFRUN-703", text=text, alone=True))


def bring_back(path: Path) -> None:
    """Copies the file of a finished call from the disk where the memory does not hold it."""
    if world().is_chief and not path.exists():
        finished_calls.from_disk(path.name, path)
