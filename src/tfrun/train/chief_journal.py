"""Tells the other workers of the chief's saves and loads, in their order.

The chief writes an entry when a save begins and one when it has ended, when it comes to a load, and
when it waits in a collective; the others read them when they have to know. Nobody waits for a
reader, so that the chief may save alone. The journal is in the round's key-value store, which all
workers share, on whatever machines they are.
"""

from __future__ import annotations

import builtins
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrun.engine import worker_store
from tfrun.job.errors import TfrunError
from tfrun.job.world import world
from tfrun.train.call_sites import CallPlace, Frame, here

# Workers reach the same line within a step's time; the largest models take minutes to write.
START_SECONDS = 60.0
WRITE_SECONDS = 1800.0
_SLICE_SECONDS = 1.0  # in between, Python looks after its signals

_lock = threading.RLock()
_counts: Counter[tuple[CallPlace | str, bool]] = Counter()  # calls at a place, and of a path


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that saves or loads something, on this worker.

    Attributes:
      place: where in the script it stands.
      nth: the number of the call at this place, from 1.
      path: what it shall write, or read.
      path_nth: the number of the call that shall write, or read, this path, from 1.
    """

    place: CallPlace
    nth: int
    path: str
    path_nth: int


@dataclass(frozen=True, kw_only=True)
class ChiefCall:
    """A save or a load that the chief has come to.

    Attributes:
      frames, nth, path, path_nth: as those of its `Call`.
      number: of the save, from 1; of a load, that of the last save before it.
      loads: it is a load.
    """

    frames: tuple[Frame, ...]
    nth: int
    path: str
    path_nth: int
    number: int
    loads: bool

    def meets(self, call: Call) -> bool:
        """Whether the script had the chief do this where it had this worker make the call."""
        return self.nth == call.nth and call.place.is_met_by(self.frames)


def call(path: str, *, loads: bool = False) -> Call:
    """Counts a call that saves or loads; on each worker, where the script has it do so."""
    place = here()
    with _lock:
        _counts[place, loads] += 1
        _counts[path, loads] += 1
        nth, path_nth = _counts[place, loads], _counts[path, loads]
        return Call(place=place, nth=nth, path=path, path_nth=path_nth)


class Writer:
    """Writes the journal, on the chief."""

    def __init__(self) -> None:
        self._entries = self._saves = 0

    def begin(self, made: Call) -> int:
        """Tells that a save begins; returns its number."""
        with _lock:
            self._saves += 1
            self._come(made, loads=False)
            return self._saves

    def end(self, number: int, result: dict[str, Any]) -> None:
        """Tells that it has been written, and what the others want to know of it."""
        self._write({"ended": number, "result": result})

    def fail(self, number: int, error: Exception) -> None:
        """Tells that it could not be written."""
        self._write({"ended": number, "error": [type(error).__name__, str(error)]})

    def come(self, made: Call) -> None:
        """Tells that it has come to a load, and so has saved what it saves before."""
        self._come(made, loads=True)

    def stand(self) -> None:
        """Tells that it waits for others in a collective."""
        self._write({"stands": True})

    def _come(self, made: Call, *, loads: bool) -> None:
        told = {"frames": made.place.frames, "nth": made.nth}
        told |= {"path": made.path, "path_nth": made.path_nth}
        with _lock:
            self._write({**told, "number": self._saves, "loads": loads})

    def _write(self, entry: dict[str, Any]) -> None:
        with _lock:
            worker_store.put(_key(self._entries), json.dumps(entry))
            self._entries += 1


class JournalReader:
    """Reads the journal, on the other workers.

    Attributes:
      path_of_chief: what the chief loads in the call that `has_passed` has found it at; or "".
    """

    def __init__(self) -> None:
        self._entries = 0
        self._begun: list[ChiefCall] = []  # saves
        self._ended: dict[int, dict[str, Any]] = {}
        self._loads: list[ChiefCall] = []
        self.path_of_chief = ""
        self._stood = self._before = 0  # before: so many saves come before the last load here

    def stood(self) -> int:
        """How often the chief has told, so far, that it waits in a collective."""
        while self._read_on(time.monotonic()):
            pass
        return self._stood

    def has_passed(self, load: Call, stood: int) -> bool:
        """Reads on for a second; whether the chief has come to a load, or passed it.

        Args:
          load: of this worker.
          stood: `stood()` before it came here. A chief that waits in a collective since then does
            so in one that comes later: this worker has been in all that come before.
        """
        if self._is_past(load, stood):
            return True
        return self._read_on(time.monotonic() + _SLICE_SECONDS) and self._is_past(load, stood)

    def _is_past(self, load: Call, stood: int) -> bool:
        for i, came in enumerate(self._loads):
            if came.meets(load) and (came.path == load.path or came.frames == load.place.frames):
                self._before, self.path_of_chief = max(self._before, came.number), came.path
                del self._loads[: i + 1]  # what comes next comes after it
                return True
        for save in self._begun[self._before :]:  # `if is_chief: save … else: load …`
            if save.path == load.path and save.number in self._ended and save.meets(load):
                self._before = save.number
                return True
        return self._stood > stood

    def find(self, wanted: Callable[[ChiefCall], bool], seconds: float) -> ChiefCall | None:
        """Waits for a save to begin; None when none has in this time."""
        deadline, looked_at = time.monotonic() + seconds, 0
        while True:
            for save in self._begun[looked_at:]:
                if wanted(save):
                    return save
            looked_at = len(self._begun)
            if not self._read_on(deadline):
                return None

    def result(self, save: ChiefCall) -> dict[str, Any]:
        """Waits for a save to end; returns what the chief tells of it.

        Raises:
          Exception: that of the chief, when it could not write.
          TfrunError: TFRUN-505 when it has not come to an end.
        """
        if not self.wait(save):
            raise not_saved(save.path)
        entry = self._ended[save.number]
        if "error" in entry:
            kind, text = entry["error"]
            raise _like(kind, text, save.path)
        return entry["result"]

    def wait(self, save: ChiefCall) -> bool:
        """Waits for a save to end, well or not; False when it has not."""
        deadline = time.monotonic() + WRITE_SECONDS
        while save.number not in self._ended:
            if not self._read_on(deadline):
                return False
        return True

    def _read_on(self, deadline: float) -> bool:
        """Reads the next entry; False when there is none at the deadline."""
        with _lock:
            text = _get(_key(self._entries), deadline)
            if text is None:
                return False
            self._entries += 1
            self._take(json.loads(text))
            return True

    def _take(self, entry: dict[str, Any]) -> None:
        if "ended" in entry:
            self._ended[entry["ended"]] = entry
        elif "stands" in entry:
            self._stood += 1
        else:
            frames = tuple(Frame(*frame) for frame in entry.pop("frames"))
            came = ChiefCall(frames=frames, **entry)
            (self._loads if came.loads else self._begun).append(came)


writer, reader = Writer(), JournalReader()


def begin_anew() -> None:
    """From now on the journal is that of another round, which its workers begin in one place."""
    global writer, reader
    with _lock:
        writer, reader = Writer(), JournalReader()


def arrive(made: Call) -> None:
    """Tells the chief that this worker has come to a save that needs all of them."""
    worker_store.put(_arrival(made, world().rank), "1")


def has_arrived(made: Call, rank: int) -> bool:
    """Waits for a worker to come to a save of the chief's; False when it does not."""
    return _get(_arrival(made, rank), time.monotonic() + START_SECONDS) is not None


def _arrival(made: Call, rank: int) -> str:
    place = ":".join(f"{frame.file}-{frame.begins}-{frame.line}" for frame in made.place.frames)
    return f"tfrun/arrived/{world().round}/{rank}/{made.nth}/{place}"


def _get(key: str, deadline: float) -> str | None:
    """Waits for a value; None when there is none at the deadline."""
    while True:
        left = deadline - time.monotonic()
        value = worker_store.get(key, min(max(left, 0.001), _SLICE_SECONDS))
        if value is not None or left <= 0:
            return value


def not_saved(path: str) -> TfrunError:
    """Returns the error for a worker that would have to wait for the chief for ever."""
    return TfrunError(
        "TFRUN-505",
        f"the chief has not saved {path}, and only the chief writes a shared model",
        where=f"worker {world().rank}",
        expected="all workers to save to one path, or the chief alone",
        fix="Save to the same path on every worker",
    )


def _like(kind: str, text: str, path: str) -> Exception:
    """Returns the chief's error, of a kind that a script catches where it tries to save."""
    message = f"the chief could not save {path}: {text}"
    known = getattr(tf.errors, kind, None) or getattr(builtins, kind, None)
    if isinstance(known, type) and issubclass(known, tf.errors.OpError):
        return known(None, None, message)
    if isinstance(known, type) and issubclass(known, OSError | ValueError):
        return known(message)
    return TfrunError("TFRUN-505", f"{message} ({kind})", where=f"worker {world().rank}")


def _key(entry: int) -> str:
    return f"tfrun/saves/{world().round}/{entry}"
