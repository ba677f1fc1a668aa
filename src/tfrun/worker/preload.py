"""Prepares a worker process before its script: imports TensorFlow, repairs it, seeds.

`preload` runs in the zygote and must execute no op: one `tf.constant` there would make every
fork fail with "Collective ops must be configured at program startup".
"""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

from tfrun.worker.deferred_imports import deferred

# What `import keras` gets for these parts of it nobody else needs: a quarter of all that it takes.
# Scripts that import such packages themselves get them here, once for all workers of all rounds.
_EXTRAS = {
    "visualization": {"matplotlib", "seaborn"},
    "wrappers": {"sklearn", "scipy"},
}
MAX_FILES = 100
MAX_BYTES = 1 << 20  # of a file; what is larger is no program that somebody has written
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\w[\w.]*(?:[ \t]*,[ \t]*\w[\w.]*)*)", re.M)


def preload(script: str | None = None) -> None:
    """Imports TensorFlow and Keras and installs the repairs."""
    # The zygote's own environment must not make TensorFlow form a cluster.
    os.environ.pop("TF_CONFIG", None)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # The garbage collector takes a fifth of the time of these imports, again and again looks at all
    # that they have made so far, and almost nothing of it is ever garbage.
    gc.disable()
    try:
        with deferred(unneeded(script)):
            from tfrun.patches.apply import apply

            apply()
    finally:
        gc.freeze()  # nor shall it look at it in the workers, whose memory that would copy
        gc.enable()


def unneeded(script: str | None) -> frozenset[str]:
    """The modules of Keras that import what this script does not; without a script, none."""
    if script is None:
        return frozenset()
    imported = imported_by(Path(script))
    return frozenset(
        f"{package}.{part}"
        for part, needs in _EXTRAS.items()
        if not needs & imported
        for package in ("keras", "keras.src", "keras._tf_keras.keras")
    )


def imported_by(script: Path) -> frozenset[str]:
    """Returns the first parts of all the names that are imported, anywhere in the text.

    Imports by other means are not seen, and some that never happen are. A file that cannot be read
    imports nothing.
    """
    folder = script.parent
    found: set[str] = set()
    waiting, seen = [script], {script}
    while waiting and len(seen) < MAX_FILES:
        names = _names(waiting.pop())
        found |= names
        for name in names:
            for path in (folder / f"{name}.py", folder / name / "__init__.py"):
                if path not in seen and path.is_file():
                    seen.add(path)
                    waiting.append(path)
    return frozenset(found)


def _names(path: Path) -> set[str]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return set()
    return {
        name.strip().partition(".")[0]
        for names in _IMPORT.findall(text)
        for name in names.split(",")
    }
