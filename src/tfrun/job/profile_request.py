"""What `tfrun profile` asks of the workers: which steps to trace, and where the traces go."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from tfrun.job import files

WORD = "profile"  # what an agent says to a worker for whom a request lies ready
NAME = "profile.json"
AHEAD_SECONDS = 2.0  # for the request to reach all workers before its first step
LEAST_AHEAD = 5  # steps
MOST_STEPS = 1000


@dataclass(frozen=True, kw_only=True)
class Request:
    """The steps after the `first` one, `steps` of them, of every worker.

    Attributes:
      first: of the whole training; the same of all workers, so that their traces are of the same
        steps.
      steps: how many.
      folder: TensorBoard's log directory, an absolute path.
      name: of this profile in it.
    """

    first: int
    steps: int
    folder: str
    name: str

    @property
    def traces(self) -> Path:
        """Where TensorBoard's profiler looks for the traces of this profile."""
        return Path(self.folder, "plugins", "profile", self.name)


def first_step(step: int, step_seconds: float | None) -> int:
    """Returns the step after which all workers can begin together.

    `step` is the newest that is known, `step_seconds` None where unknown.
    """
    ahead = math.ceil(AHEAD_SECONDS / step_seconds) if step_seconds else 0
    return step + max(LEAST_AHEAD, ahead)


def write(folder: Path, request: Request) -> None:
    """Leaves a request where the workers of a machine find it."""
    # Where the memory is full they have none to answer.
    with contextlib.suppress(OSError), files.whole(folder / NAME) as temporary:
        temporary.write_text(json.dumps(asdict(request)))


def read(folder: Path) -> Request | None:
    """Returns the last request; None when there is none."""
    try:
        return Request(**json.loads((folder / NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None
