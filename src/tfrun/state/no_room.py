"""Says, once until it is over, what does not fit into the machine's memory."""

from __future__ import annotations

import re
from pathlib import Path

from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.process import channel

MARK = ".no-room"  # another worker of this machine, or of an earlier round, has said it
_said = False


def not_kept(folder: Path, what: str, error: Exception) -> TfrunError:
    """The error of a state that cannot be kept.

    `what` is "no snapshot" and the like; the error is the operating system's, or of safetensors.
    """
    reason = getattr(error, "strerror", None) or re.sub(r" \(os error \d+\)|^.*: ", "", str(error))
    return TfrunError(
        "TFRUN-702",
        f"{what} is kept in the machine's memory: {reason}",
        where=str(folder),
        fix="Make room there: what runs on it, and files that nobody needs",
    )


def say(folder: Path, what: str, error: Exception) -> None:
    """Has the terminal show that `what` is not kept, and that training goes on."""
    global _said
    try:
        (folder / MARK).touch(exist_ok=False)
    except FileExistsError:
        return
    except OSError:
        if _said:
            return
    _said = True
    text = f"{not_kept(folder, what, error)} Training goes on; a failure would take it back to the "
    channel.emit(reports.WorkerNotice(text=f"{text}last checkpoint on disk, or to the beginning."))


def over(folder: Path) -> None:
    """There is room again."""
    global _said
    mark = folder / MARK
    if _said or mark.exists():
        _said = False
        mark.unlink(missing_ok=True)
        channel.emit(reports.WorkerNotice(text="Snapshots are kept in the machine's memory again."))
