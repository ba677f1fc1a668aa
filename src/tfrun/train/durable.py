"""Checkpoints on disk of the training that runs: the chief's work, done while it goes on."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

from tfrun.checkpoint.policy import Every, Moment, due, parse
from tfrun.checkpoint.store import Store
from tfrun.checkpoint.tf_format import Layout
from tfrun.checkpoint.writer import BackgroundWriter
from tfrun.job.world import world
from tfrun.train import finished, snapshot, variables
from tfrun.train.snapshot import Place, Snapshot

DIRECTORY, EVERY, KEEP = "TFRUN_CHECKPOINT_DIR", "TFRUN_CHECKPOINT_EVERY", "TFRUN_KEEP"
END_SECONDS = 30.0  # how long the end of the script waits for the last one

_log = logging.getLogger("tfrun")
_durable: list[Durable | None] = []


class Durable:
    """Writes what is due to the job's checkpoint directory."""

    def __init__(self, directory: Path, every: Every, keep: int) -> None:
        self._directory, self._every = directory, every
        self._store = Store(directory, keep)
        self._writer = BackgroundWriter(self._store, _log.warning)
        self._last = Moment(now=time.monotonic(), step=0)
        self._layouts: dict[int, tuple[Any, Layout]] = {}
        atexit.register(self._writer.close, END_SECONDS)

    def is_due(self, step: int, *, epoch_ended: bool) -> bool:
        """Whether a checkpoint should be written after this step."""
        at = Moment(now=time.monotonic(), step=step)
        return due(self._every, at=at, epoch_ended=epoch_ended, last=self._last)

    def submit(self, model: Any, kept: Snapshot) -> None:
        """Hands a state over to be written; returns at once."""
        step: int = kept.values["iterations"]
        self._last = Moment(now=time.monotonic(), step=step)
        place = kept.place
        meta = {"place": [place.call, place.epoch, place.step], "values": kept.values}
        self._writer.submit(step, meta, kept.arrays, self._layout(model))

    def save_now(self, model: Any, kept: Snapshot, seconds: float) -> bool:
        """Writes a state and waits for the disk; False when it takes longer than `seconds`."""
        self.submit(model, kept)
        return self._writer.flush(seconds)

    def keep_call(self, path: Path) -> None:
        """Keeps what a `fit` call has returned, beside the checkpoints."""
        target = self._directory / "calls" / path.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(path, target)
        except OSError as error:
            _log.warning("The result of a fit call is not saved to %s: %s.", target, error)

    def _layout(self, model: Any) -> Layout:
        if id(model) not in self._layouts:
            names = variables.state_variables(model)
            made = Layout.of(model, getattr(model, "optimizer", None), names=names)
            self._layouts[id(model)] = model, made
        return self._layouts[id(model)][1]


def durable() -> Durable | None:
    """The job's checkpoints; None on other workers than the chief, and when there are none."""
    if not _durable:
        directory = os.environ.get(DIRECTORY)
        made = None
        if directory and world().is_chief:
            every = parse(os.environ.get(EVERY) or "10m")
            made = Durable(Path(directory), every, int(os.environ.get(KEEP) or 5))
        _durable.append(made)
    return _durable[0]


def fetch_into(folder: Path) -> None:
    """Brings what an earlier job in this run directory has saved into the snapshots' folder.

    Does nothing where there are snapshots: they are newer.
    """
    directory = os.environ.get(DIRECTORY)
    if not directory or not world().is_chief:
        return
    if snapshot.latest(folder) is not None or finished.last(folder) >= 0:
        return
    for path in Path(directory, "calls").glob("call-*.safetensors"):
        with contextlib.suppress(OSError):
            _copy(path, folder / path.name)
    stored = Store(directory, read_only=True).newest()
    if stored is None or "place" not in stored.meta:
        return
    call, epoch, step = stored.meta["place"]
    place = Place(call=call, epoch=epoch, step=step)
    kept = Snapshot(place=place, values=stored.meta["values"], arrays=stored.arrays)
    if snapshot.write(folder, kept):
        _log.info("Going on from the checkpoint %s.", stored.path)


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copyfile(source, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
