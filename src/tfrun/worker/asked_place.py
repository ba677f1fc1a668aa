"""Notes that a script reads its place in the job from its environment.

It may go by that for as long as it runs, but a worker that stays when another one dies can have
another place from then on.
"""

from __future__ import annotations

import os
import sys
from types import FrameType

from tfrun.job.settings import ROUND
from tfrun.job.world import note_asked
from tfrun.process.files.callers import Caller, of_file

NAMES = {"TF_CONFIG", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ROUND}
# A copy is for another process, and to ask whether it is there tells no number.
_TELL_NO_PLACE = {("os", "copy"), ("collections", "__contains__")}
_READ_FOR_OTHERS = ("os", "collections", "tensorflow")


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
        if (package, frame.f_code.co_name) in _TELL_NO_PLACE:
            return False
        if package not in _READ_FOR_OTHERS:
            return of_file(frame.f_code.co_filename) is Caller.SCRIPT
        frame = frame.f_back
    return False
