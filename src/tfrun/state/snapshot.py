"""Snapshots: the state of a job between two steps, as files in the machine's shared memory.

A snapshot is one safetensors file: arrays, and in its header what is no array. It is written under
another name and then renamed, so a half-written one is never read, and its checksum is compared.
Workers hold the same state, so the first one of a machine that gets there writes it for all.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save, save_file

from tfrun.checkpoint.side_files import as_plain, as_they_were
from tfrun.job import files, reports
from tfrun.process import channel, progress
from tfrun.state import no_room

KEPT = 2
CALLS = "calls"  # beside the checkpoints: what trainings that are done have left
VARIABLES = ("model/", "optimizer/")  # so begin the names of a model's and its optimizers' arrays
_found_whole: dict[Path, tuple[object, Snapshot]] = {}  # by `latest`, until somebody reads it
_NAME = re.compile(r"state-(\d+)-(\d+)-(\d+)\.safetensors")


class Place(NamedTuple):
    """Where the script's training stands: every place is reached once, in this order.

    Attributes:
      call: the number of the `fit` call in the script, from 0.
      epoch: as Keras numbers it.
      step: steps of this epoch that are done.
    """

    call: int = 0
    epoch: int = 0
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A state between two steps.

    Attributes:
      place: where it stands.
      values: everything that JSON holds.
      arrays: everything else, by name.
    """

    place: Place
    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray] = field(default_factory=dict)

    @classmethod
    def of(cls, meta: Mapping[str, Any], arrays: dict[str, NDArray]) -> Snapshot:
        """The state of which `meta` has told all but its arrays."""
        return cls(place=Place(*meta["place"]), values=meta["values"], arrays=arrays)

    @property
    def meta(self) -> dict[str, Any]:
        """All but the arrays, as JSON."""
        return {"place": list(self.place), "values": self.values}


def write(folder: Path, snapshot: Snapshot) -> bool:
    """Writes `snapshot` unless the same place has been written already.

    Returns:
      Whether it is there; False when there is no room for it, which is said.
    """
    path = path_of(folder, snapshot.place)
    try:
        with progress.pausing(), _alone(folder):
            if path.exists():
                return True
            write_file(path, snapshot)
    except (OSError, SafetensorError) as error:
        no_room.say(folder, "no snapshot", error)
        return False
    no_room.over(folder)
    found = _found(folder)
    for old in sorted(found)[:-KEPT]:
        found[old].unlink(missing_ok=True)
    return True


def write_and_tell(folder: Path, snapshot: Snapshot) -> float:
    """Writes `snapshot` and reports it if it is there; returns the seconds that it took."""
    began = time.monotonic()
    is_there = write(folder, snapshot)
    seconds = time.monotonic() - began
    if is_there:
        key, step = list(snapshot.place), snapshot.values["iterations"]
        channel.emit(reports.SnapshotTaken(key=key, step=step, seconds=seconds))
    return seconds


def is_same(a: Snapshot, b: Snapshot) -> bool:
    """Whether two hold the same variables at the same place, whatever callbacks remember."""
    mine, theirs = ({n: v for n, v in s.arrays.items() if _is_state(n)} for s in (a, b))
    return (
        a.place == b.place
        and mine.keys() == theirs.keys()
        and all(mine[name].tobytes() == theirs[name].tobytes() for name in mine)
    )


def _is_state(name: str) -> bool:
    return name.startswith((*VARIABLES, "metrics", "objects"))


def path_of(folder: Path, place: Place) -> Path:
    """The file of a place on this machine."""
    return folder / f"state-{place.call}-{place.epoch}-{place.step}.safetensors"


def path_of_call(folder: Path, call: int) -> Path:
    """The file of a training that is done, by its number in the script."""
    return folder / f"call-{call}.safetensors"


def calls(folder: Path) -> dict[int, Path]:
    """The files of all trainings that are done, by their numbers."""
    numbers = ((path.stem.partition("-")[2], path) for path in folder.glob("call-*.safetensors"))
    return {int(number): path for number, path in numbers if number.isdecimal()}


def last_call(folder: Path) -> int:
    """The number of the last training that is done; -1 when none is."""
    return max(calls(folder), default=-1)


def latest(folder: Path) -> Place | None:
    """The latest place that there is a snapshot of; one that is damaged does not count."""
    for (call, epoch, step), path in sorted(_found(folder).items(), reverse=True):
        version = _version(path)
        if (whole := read_file(path)) is not None:
            _found_whole[path] = version, whole
            return Place(call=call, epoch=epoch, step=step)
    return None


def forget() -> None:
    """Nobody reads what `latest` has found: its memory is free again."""
    _found_whole.clear()


def write_file(path: Path, snapshot: Snapshot) -> None:
    """Writes one file, whole or not at all.

    Raises:
      OSError: there is no room, or no right.
    """
    arrays, header = _as_file(snapshot)
    with files.whole(path) as temporary:
        save_file(arrays, temporary, header)


def data_of(snapshot: Snapshot) -> bytes:
    """What a file holds; `parse` is its inverse."""
    return save(*_as_file(snapshot))


def _as_file(snapshot: Snapshot) -> tuple[dict[str, NDArray], dict[str, str]]:
    arrays, dtypes = as_plain(snapshot.arrays)
    header = {
        **snapshot.meta,
        "dtypes": dtypes,
        "crc32": {name: zlib.crc32(array) for name, array in arrays.items()},
    }
    return arrays, {"tfrun": json.dumps(header)}


def read_file(path: Path, *, variables: bool = True) -> Snapshot | None:
    """Reads one file; None when it is not there or not whole.

    Args:
      path: the file.
      variables: False to leave them where they are, which are most of it.
    """
    version, whole = _found_whole.pop(path, (None, None))
    if variables and whole is not None and version == _version(path):
        return whole
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})["tfrun"])
            names = (n for n in file.keys() if variables or not n.startswith(VARIABLES))  # noqa: SIM118
            arrays = {name: file.get_tensor(name) for name in names}
        return _whole(header, arrays)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _version(path: Path) -> object:
    """Differs between two files that have been written at the same path."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def parse(data: bytes) -> Snapshot | None:
    """Reads what a file holds; None when it is not whole."""
    try:
        # https://huggingface.co/docs/safetensors: the header's length, the header as JSON, arrays.
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])["__metadata__"]["tfrun"]
        return _whole(json.loads(header), load(data))
    except (SafetensorError, KeyError, TypeError, ValueError):
        return None


def _whole(header: dict[str, Any], arrays: dict[str, Any]) -> Snapshot | None:
    """The snapshot, if its arrays have their checksums."""
    if any(zlib.crc32(array) != header["crc32"][name] for name, array in arrays.items()):
        return None
    dtypes = {name: dtype for name, dtype in header["dtypes"].items() if name in arrays}
    return Snapshot.of(header, as_they_were(arrays, dtypes))


def read_values(path: Path) -> dict[str, Any] | None:
    """Reads a file's `values` alone, which are short; None when it is not there or not whole."""
    try:
        with safe_open(path, framework="numpy") as file:
            return json.loads((file.metadata() or {})["tfrun"])["values"]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _found(folder: Path) -> dict[tuple[int, ...], Path]:
    """All snapshots in `folder` by place."""
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return {tuple(map(int, match.groups())): path for match, path in matches if match}


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds a lock among the machine's workers, which a worker's death releases.

    Raises:
      OSError: there is no room for a file, or no right.
    """
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
