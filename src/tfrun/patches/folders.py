"""Folders that another worker has made in the meantime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras.src.utils import file_utils


def let_others_make_them() -> None:
    """Has Keras be content with a folder that is there already; once. Runs no op.

    Keras asks whether a folder exists, and then makes it (`file_utils.makedirs`, keras 3.15, in
    ModelCheckpoint and BackupAndRestore). Workers of one machine, or of one file system, that call
    these callbacks in a loop of their own do so at the same moment: FileExistsError.
    """
    original: Any = file_utils.makedirs
    if hasattr(original, "_tfrun_original"):
        return

    def makedirs(path: Any) -> None:
        try:
            original(path)
        except FileExistsError:
            if not Path(path).is_dir():
                raise

    makedirs._tfrun_original = original  # type: ignore[attr-defined]
    file_utils.makedirs = makedirs
