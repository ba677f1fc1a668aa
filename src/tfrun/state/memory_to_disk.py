"""Writes the snapshots in a machine's memory to the job's checkpoints, without the script.

A program of its own, which an agent starts: `FOLDER CHECKPOINTS KEEP`; it prints one JSON object.
The checkpoint has no part for plain TensorFlow, which needs the script's objects.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tfrun.checkpoint import durable_files, side_files
from tfrun.checkpoint.atomic_store import Store
from tfrun.job.errors import TfrunError
from tfrun.state import snapshot
from tfrun.state.snapshot import Snapshot


def save(folder: Path, directory: Path, keep: int) -> int | None:
    """Saves what is newer than what is on disk; returns the step that is there then.

    Returns:
      None when no training was in the middle.

    Raises:
      OSError, TfrunError: it cannot be written.
    """
    for path in snapshot.calls(folder).values():
        target = directory / snapshot.CALLS / path.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            durable_files.copy(path, target)
    place = snapshot.latest(folder)
    if place is None or place.call <= snapshot.last_call(folder):
        return None
    kept = snapshot.read_file(snapshot.path_of(folder, place))
    assert kept is not None
    step: int = kept.values["iterations"]
    store = Store(directory, keep)
    if not _is_there(store, step, kept):
        store.write(step, kept.meta, kept.arrays)
    store.close()
    return step


def _is_there(store: Store, step: int, kept: Snapshot) -> bool:
    """Whether a checkpoint, which plain TensorFlow may read as well, has this state."""
    found = [path for path, manifest in store.list() if manifest.step == step]
    try:
        meta = side_files.read(found[-1])[0]["meta"] if found else {}
    except (OSError, SafetensorError, ValueError, KeyError):
        return False
    return meta.get("place") == list(kept.place)


def _answer(folder: str, directory: str, keep: str) -> dict[str, Any]:
    try:
        step = save(Path(folder), Path(directory), int(keep))
    except TfrunError as error:
        return {"step": -1, "problem": error.what}
    except OSError as error:
        return {"step": -1, "problem": f"{error.filename or directory}: {error.strerror}"}
    return {"step": -1 if step is None else step, "problem": ""}


def main() -> None:
    print(json.dumps(_answer(*sys.argv[1:])))
