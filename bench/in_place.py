"""SIGKILL of a worker of a job whose workers stay: seconds to the first new step of those left.

And the longest step while a successor takes the place. Both for several models, with two workers
and with four, and beside what one step takes then.

Goals: 0.1 s with two workers and 0.2 s with four, and one step; no step over 0.3 s at a takeover.

    in_place.py [KILLS [WORKERS MODEL SECONDS]]
"""

from __future__ import annotations

import itertools
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from harness import SCRIPTS, numbers, record

from tfrun.tools.child_job import ChildJob
from tfrun.tools.drill import fault_events as reading
from tfrun.tools.drill.run import DRILLED

JOB_SECONDS, BETWEEN, EPOCHS = 900.0, 20, 100_000
MADE = 8  # steps that those left make before a look is taken
LAST_BYTES = 1 << 16  # of the steps of a worker: a small model makes hundreds in a second
# Model, and seconds that its script takes at its top.
# One with "-loop" is trained by a loop of its own.
MODELS = (("tiny", 0), ("cnn", 0), ("resnet50", 0), ("transformer", 0), ("cnn", 5))
MODELS += (("resnet50-loop", 0),)

Line = tuple[float, int, int]  # when, steps that are done, round


@dataclass(frozen=True, kw_only=True)
class Stay:
    """What a kill led to.

    Attributes:
      seconds: to the first step of the next round.
      step: what one takes there, once all goes on.
      redone: steps that were made again.
      takeover: the longest step while a successor takes the place.
    """

    seconds: float
    step: float
    redone: int
    takeover: float


def main(kills: int = 6, *only: str) -> None:
    chosen = [(int(only[0]), only[1], float(only[2]))] if only else []
    for workers, model, seconds in chosen or [(n, *one) for n in (2, 4) for one in MODELS]:
        found = under(workers, model, seconds, range(kills))
        slow = f", {seconds:g} s at its top" if seconds else ""
        record(
            f"workers stay: {model}{slow}, {workers} workers",
            "s",
            {
                "SIGKILL to first new step": numbers([one.seconds for one in found]),
                "less one step": numbers([one.seconds - one.step for one in found]),
                "one step then": numbers([one.step for one in found]),
                "longest step of a takeover": numbers([one.takeover for one in found]),
            },
            steps_redone=sum(one.redone for one in found),
        )


def under(
    workers: int, model: str, seconds: float, numbers: Sequence[int], made: int = BETWEEN
) -> list[Stay]:
    """Kills one worker after the other, each once a successor has taken the place of the last.

    Args:
      workers: how many.
      model: of scripts/in_place.py.
      seconds: that the script takes at its top.
      numbers: those of the kills, which say whom each hits.
      made: steps that all have made together before each kill.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = [str(SCRIPTS / "in_place.py"), model, str(EPOCHS), str(seconds)]
        many = ["-n", str(workers), "--replicas", str(workers), "--in-place"]
        options = [*many, "--max-restarts", "1000", "--seed", "1", *script]
        shared = {**harness._environment(), "BENCH_STEPS": folder}
        with ChildJob(
            options,
            Path(folder, "run"),
            timeout=JOB_SECONDS,
            wanted=DRILLED,
            environment=shared,
        ) as job:
            return [_kill(job, Path(folder), workers, i, made) for i in numbers]


def _kill(job: ChildJob, folder: Path, workers: int, number: int, made: int) -> Stay:
    pids = _until(job, lambda events: _all_train(reading.running(events), folder, workers, made))
    victim = sorted(pids.items())[number % workers][1]
    before = max(line[2] for line in _lines(folder, victim))
    now = time.time()
    job.send(victim, signal.SIGKILL)
    left = [pid for pid in pids.values() if pid != victim]
    _until(job, lambda _: all(_after(folder, pid, before, MADE) for pid in left))
    written = {pid: _lines(folder, pid) for pid in left}
    new = [next(line for line in lines if line[2] > before) for lines in written.values()]
    last = max(line[1] for lines in written.values() for line in lines if line[2] == before)
    # Until a successor has taken the place, and a few steps longer.
    grown = _until(job, lambda _: next((r for r in _rounds(folder, left) if r > before + 1), None))
    _until(job, lambda _: all(_after(folder, pid, grown - 1, 4) for pid in left))
    return Stay(
        seconds=max(line[0] for line in new) - now,
        step=statistics.median(_steps(written[left[0]], before + 1)),
        redone=max(0, last + 1 - min(line[1] for line in new)),
        takeover=max(_longest(_lines(folder, pid), grown) for pid in left),
    )


def _until(job: ChildJob, condition: Callable[[list], Any]) -> Any:
    found = job.until(condition)
    if not found:
        raise SystemExit(f"the job has ended\n{job.log.read_text()[-4000:]}")
    return found


def _all_train(
    running: Mapping[str, reading.WorkerRun], folder: Path, workers: int, made: int
) -> dict[str, int]:
    """The process of each task, when all of them have made so many steps in the newest round."""
    pids = {task: run.pid for task, run in running.items()}
    newest = max((run.round for run in running.values()), default=0)
    ready = all(len(_after(folder, pid, newest - 1, made)) for pid in pids.values())
    return pids if len(pids) == workers and ready else {}


def _lines(folder: Path, pid: int) -> list[Line]:
    """The last ones that a process has written."""
    path = folder / f"steps-{pid}.txt"
    if not path.exists():
        return []
    with path.open() as file:
        file.seek(max(0, path.stat().st_size - LAST_BYTES))
        whole = file.read().rpartition("\n")[0].splitlines()[1:]
    return [(float(at), int(done), int(number)) for at, done, number in map(str.split, whole)]


def _after(folder: Path, pid: int, number: int, many: int) -> list[Line]:
    """What a process has done after a round, once it has made so many steps there."""
    found = [line for line in _lines(folder, pid) if line[2] > number]
    return found if len(found) >= many else []


def _rounds(folder: Path, pids: list[int]) -> list[int]:
    return [line[2] for pid in pids for line in _lines(folder, pid)[-1:]]


def _steps(lines: list[Line], number: int) -> list[float]:
    """What the steps of a round took, but for the first ones."""
    times = [at for at, _, r in lines if r == number][1:MADE]
    return [b - a for a, b in itertools.pairwise(times)]


def _longest(lines: list[Line], number: int) -> float:
    """The longest step around the beginning of a round."""
    at = next(i for i, line in enumerate(lines) if line[2] == number)
    near = lines[max(0, at - 2) : at + 4]
    return max(b[0] - a[0] for a, b in itertools.pairwise(near))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
