"""The steps that workers have done, as they write them down, and what a kill did to them.

Each worker process has a file steps-<rank>-<pid>.txt in the directory BENCH_STEPS. A line of it is
"<seconds since the epoch> <steps of the training>".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

STEPS_AN_EPOCH = 50
# Steps that a worker which lives has to make between two kills. The kills fall on every place of an
# epoch, and of ten steps; already three are on average in the midst of both.
BETWEEN = 37

Step = tuple[float, int]


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What a kill led to: seconds to the first new step, and how many steps were done again."""

    seconds: float
    redone: int


def before(number: int) -> int:
    """Steps that new processes make before they get the kill of this number: an epoch and more."""
    return STEPS_AN_EPOCH + (number + 1) * BETWEEN % STEPS_AN_EPOCH


def files(folder: Path) -> set[Path]:
    """The files of all workers so far."""
    return set(folder.glob("steps-*.txt"))


def process(path: Path) -> tuple[int, int]:
    """Whose file it is: rank and process id."""
    _, rank, pid = path.stem.split("-")
    return int(rank), int(pid)


def read(folder: Path, without: Collection[Path] = ()) -> dict[Path, list[Step]]:
    """The steps in each file, but those in `without`."""
    found = {}
    for path in sorted(files(folder) - set(without)):
        whole = path.read_text().rpartition("\n")[0].splitlines()
        found[path] = [(float(at), int(n)) for at, n in map(str.split, whole)]
    return found


def first(folder: Path, known: Collection[Path]) -> Step | None:
    """The first step of processes that are not among the known ones."""
    return min((steps[0] for steps in read(folder, known).values() if steps), default=None)


def recovery(folder: Path, known: Collection[Path], killed: float, new: Step) -> Recovery:
    """What a kill at `killed` led to; `known` are the files that were there then."""
    # Read now: the survivor may have finished a step after the kill.
    last = max(steps[-1][1] for path, steps in read(folder).items() if path in known and steps)
    return Recovery(seconds=new[0] - killed, redone=max(0, last + 1 - new[1]))
