"""Preemption: the chief saves what has been trained before the machine is taken, and says so.

Usually the training's own thread does it, between two steps. Where it does not come that far soon,
because it traces its first step, validates or is in a callback, another thread saves the state that
a successor would go on from: nothing changes it meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tfrun.job import reports
from tfrun.job.world import world
from tfrun.process import channel, progress
from tfrun.state import snapshot
from tfrun.state.durable_checkpoints import Saved, durable
from tfrun.state.snapshot import Snapshot

BOUNDARY_SECONDS = 2.0  # so long the training's own thread has to come to the end of a step
AGAIN_SECONDS = 1.0
SAVE_SECONDS = 60.0  # the controller ends it sooner

State = Callable[[], Snapshot | None]

_wanted = threading.Event()
_saved = threading.Event()
_saving = threading.Lock()
_open: list[Preemptible] = []
_has_trained = False
_tried = 0.0  # when it last failed


def listen() -> None:
    """Has the training's state saved when the agent says so."""
    channel.when("save", _save_is_wanted)


class Moving(Exception):
    """A training goes on: it saves itself after the step."""


class Preemptible:
    """A training of the script, as preemption sees it; open until `close`.

    Args:
      what: gives what it becomes in a TensorFlow checkpoint.
      aside: the state as another thread sees it at any moment; None while there is no telling.

    Attributes:
      changing: a context in which no other thread takes the state.
    """

    def __init__(self, what: Callable[[], Saved], aside: State) -> None:
        self.what, self._aside = what, aside
        self._seen: Snapshot | None = None
        self.changing = threading.RLock()
        self._state: State | None = lambda: None
        _open.append(self)

    def rests(self, state: State) -> None:
        """Until `moves` any thread may take `state`; it gives None when nothing is new."""
        with self.changing:
            self._state = state

    def moves(self) -> None:
        """A step changes the state from now on."""
        global _has_trained
        if self._state is not None:
            with self.changing:
                self._state, _has_trained = None, True

    def at_boundary(self, state: State) -> None:
        """Saves `state` if that is wanted. For the training's own thread, between two steps."""
        if not _wanted.is_set() or _saved.is_set() or not world().is_chief:
            return
        if time.monotonic() - _tried >= AGAIN_SECONDS:
            with progress.pausing():
                _save(self, state)

    def close(self) -> None:
        """The training is over, and what it has left is kept."""
        if self in _open:
            _open.remove(self)

    def take(self) -> Snapshot | None:
        """The state of a training that rests, or that stands where it stood the last time.

        Its thread may be in a callback, wait for data, or be in a step whose gradients come to no
        reduction. What two looks have found the same is not in the middle of a change, of one that
        a callback makes by hand either.

        Raises:
          Moving: it does neither.
        """
        with self.changing:
            if self._state is not None:
                return self._state()
            before, self._seen = self._seen, self._aside()
            if before is None or self._seen is None or not snapshot.is_same(before, self._seen):
                raise Moving
            return self._seen


def read(path: Path) -> Snapshot:
    """The snapshot that the training has been restored from; as long as no step follows, its state.

    Raises:
      OSError: it cannot be read any more.
    """
    kept = snapshot.read_file(path)
    if kept is None:
        raise OSError(errno.EIO, "cannot be read", str(path))
    return kept


def state_at_rest() -> Snapshot | None:
    """The state of the training that is open; None when nothing is new.

    Raises:
      Moving: its own thread goes on, or this is the first look at it.
    """
    return _open[-1].take() if _open else None


def _save_is_wanted() -> None:
    _wanted.set()
    if world().is_chief:
        threading.Thread(target=_see_to_it, name="tfrun preemption", daemon=True).start()


def _see_to_it() -> None:
    """Saves what the training's own thread does not."""
    wait = BOUNDARY_SECONDS if _open else 0.0
    while not _saved.wait(wait):
        wait = AGAIN_SECONDS
        training = _open[-1] if _open else None
        with contextlib.suppress(Moving):
            _save(training, training.take if training else lambda: None)


def _save(training: Preemptible | None, state: State) -> None:
    """Brings a state to the disk and tells; once, but again after a failure."""
    global _tried
    with _saving:
        if _saved.is_set():
            return
        try:
            step, problem = _to_disk(training, state())
        except Moving:
            raise
        except Exception as error:  # whatever it is, the job's end has to know
            step, problem = None, f"{type(error).__name__}: {error}"
        if problem:
            _tried = time.monotonic()
            channel.emit(reports.StateNotSaved(reason=problem, for_good=durable() is None))
        else:
            _saved.set()
            channel.emit(reports.StateSaved(step=step))


def _to_disk(training: Preemptible | None, kept: Snapshot | None) -> tuple[int | None, str]:
    """Returns the step that is on the disk, and what went wrong."""
    saving = durable()
    if saving is None:
        return None, "checkpoints are off" if _has_trained else ""
    problem = saving.calls.keep_again()
    if problem or kept is None or training is None:
        return None, problem
    problem = saving.save_now(training.what(), kept, SAVE_SECONDS)
    return kept.values["iterations"], problem
