"""Writes the snapshots in a machine's memory to the job's checkpoints, without the script.

A program of its own, which an agent starts: `FOLDER CHECKPOINTS KEEP [LEASE]`; it prints one JSON
object. LEASE is that of a place in object storage.
The checkpoint has no part for plain TensorFlow, which needs the script's objects.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tfrun.checkpoint import durable_files
from tfrun.checkpoint.atomic_store import Store
from tfrun.checkpoint.remote_directory import RemoteDirectory
from tfrun.checkpoint.remote_store import RemoteStore
from tfrun.job.errors import TfrunError
from tfrun.state import snapshot
from tfrun.state.snapshot import Snapshot
from tfrun.storage.url import is_url


def save(folder: Path, directory: Path | str, keep: int, lease: str = "") -> int | None:
    """Saves what is newer than what is on disk; returns the step that is there then.

    Returns:
      None when no training was in the middle.

    Raises:
      OSError, TfrunError: it cannot be written.
    """
    calls = snapshot.calls(folder).values()
    store: Store | RemoteStore
    if isinstance(directory, str) and is_url(directory):
        remote = RemoteDirectory(directory)
        for path in calls:
            if not remote.has_call(path.name):
                remote.keep_call(path)
        store = remote.store(keep, token=lease, state_dir=folder)
    else:
        for path in calls:
            target = Path(directory, snapshot.CALLS, path.name)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                durable_files.copy(path, target)
        store = Store(directory, keep)
    place = snapshot.latest(folder)
    if place is None or place.call <= snapshot.last_call(folder):
        return None
    kept = snapshot.read_file(snapshot.path_of(folder, place))
    assert kept is not None
    step: int = kept.values["iterations"]
    if not _is_there(store, step, kept):
        store.write(step, kept.meta, kept.arrays)
    store.close()
    return step


def _is_there(store: Store | RemoteStore, step: int, kept: Snapshot) -> bool:
    """Whether a checkpoint, which plain TensorFlow may read as well, has this state."""
    return store.meta_of(step).get("place") == list(kept.place)


def _answer(folder: str, directory: str, keep: str, lease: str = "") -> dict[str, Any]:
    where = directory if is_url(directory) else Path(directory)
    try:
        step = save(Path(folder), where, int(keep), lease)
    except TfrunError as error:
        return {"step": -1, "problem": error.what}
    except OSError as error:
        return {"step": -1, "problem": f"{error.filename or directory}: {error.strerror}"}
    return {"step": -1 if step is None else step, "problem": ""}


def main() -> None:
    print(json.dumps(_answer(*sys.argv[1:])))
