"""Notes that a script reads its place in the job from its environment.

It may go by that for as long as it runs, but a worker that stays when another one dies can have
another place from then on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

from tfrun.job.settings import ROUND
from tfrun.job.world import note_asked

NAMES = {"TF_CONFIG", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ROUND}
_READ_FOR_OTHERS = ("os", "_collections_abc", "collections", "tensorflow")
_ITS_OWN = ("tfrun", "keras")
_PYTHON = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class _Watched(os._Environ):
    def __getitem__(self, key):
        if key in NAMES and _is_by_script(sys._getframe(1)):
            note_asked(f"os.environ[{key!r}]")
        return super().__getitem__(key)


def watch() -> None:
    """From now on it is noted when the script reads one of these variables."""
    os.environ.__class__ = _Watched  # type: ignore[assignment]


def _is_by_script(frame: FrameType | None) -> bool:
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package == "os" and frame.f_code.co_name == "copy":  # for another process
            return False
        if package not in _READ_FOR_OTHERS:
            file = frame.f_code.co_filename
            is_library = file.startswith(_PYTHON) or any(part in file for part in _INSTALLED)
            return package not in _ITS_OWN and not is_library
        frame = frame.f_back
    return False
