"""The file names in a directory of checkpoints; a `ckpt-*` there is always complete.

What is being written, was replaced by another checkpoint of the same step, or is being removed,
has a hidden name meanwhile. A crash leaves it behind, and `tidy` clears up.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from pathlib import Path

from tfrun.checkpoint import durable_files, manifest
from tfrun.checkpoint.manifest import Damaged, Manifest

POINTER = "checkpoint"
_NEW, _REPLACED, _REMOVED = ".new-", ".replaced-", ".removed-"


def checkpoint(directory: Path, step: int) -> Path:
    """Returns where the checkpoint of a step belongs."""
    return directory / f"ckpt-{step}"


def temporary(target: Path) -> Path:
    """Returns a hidden path beside `target`, under which to write it."""
    return _hidden(_NEW, target)


def publish(new: Path, target: Path) -> None:
    """Gives a checkpoint that was written its name; one of the same step goes.

    Raises:
      OSError: it cannot be renamed, and all is as before.
    """
    if not target.exists():
        new.rename(target)
        return
    old = target.rename(_hidden(_REPLACED, target))
    try:
        new.rename(target)
    except OSError:
        old.rename(target)
        raise
    durable_files.remove(old)


def take_away(path: Path) -> None:
    """Removes a checkpoint; under its own name it would look damaged when half of it is gone.

    Raises:
      OSError: it cannot be renamed, and is still there.
    """
    durable_files.remove(path.rename(_hidden(_REMOVED, path)))


def tidy(directory: Path) -> None:
    """Clears up after a writer that is dead."""
    for path in sorted(directory.glob(f"{_REPLACED}ckpt-*")):
        target = path.with_name(path.name.removeprefix(_REPLACED).rpartition("-")[0])
        if not target.exists():  # killed between the two renames of `publish`
            path.rename(target)
    left = *(f"{hidden}ckpt-*" for hidden in (_NEW, _REPLACED, _REMOVED)), f".{POINTER}.*"
    for path in itertools.chain.from_iterable(map(directory.glob, left)):
        durable_files.remove(path)


def look(directory: Path) -> Sequence[tuple[Path, Manifest | Damaged]]:
    """Returns the checkpoints, the oldest first; one without a manifest counts as the oldest."""
    found = []
    for path in sorted(directory.glob("ckpt-*")):
        try:
            found.append((path, manifest.read(path)))
        except Damaged as error:
            found.append((path, error))
    return sorted(found, key=lambda item: getattr(item[1], "sequence", -1))


def pointer_to(prefix: Path) -> bytes:
    """Returns what tells TensorFlow the newest checkpoint: a CheckpointState in text form.

    The path is relative, so that the directory can be moved.
    """
    path = f'"{prefix.parent.name}/{prefix.name}"'
    return f"model_checkpoint_path: {path}\nall_model_checkpoint_paths: {path}\n".encode()


def _hidden(beginning: str, target: Path) -> Path:
    return target.with_name(f"{beginning}{target.name}-{uuid.uuid4().hex[:8]}")
