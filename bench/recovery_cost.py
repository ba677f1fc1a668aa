"""What recovery costs a step while nothing fails. Goals: the state in memory under 1 % of the step
time, checkpoints on disk under 1 %.

Both are measured inside one job, by turns, so that what else the machine does hits all sides.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence

from harness import numbers, record, tfrun

EVERY = 100  # steps from checkpoint to checkpoint
EPOCH = 50  # steps, of which those of every other epoch have a checkpoint among them


def main(of_state: int = 240, of_checkpoints: int = 200) -> None:
    if of_state:
        state(of_state)
    if of_checkpoints:
        checkpoints(of_checkpoints)


def state(seconds: int) -> None:
    """What is done at every step; two sides without it show the error of the measure."""
    measured = tfrun(2, "recovery_cost.py", "state", str(seconds))
    for what, (on, off, again) in _by_turns(measured, 3):
        neither = [(a + b) / 2 for a, b in zip(off, again, strict=True)]
        more, none = _percent(on, neither), _percent(again, off)
        record(
            f"a step without faults, {what}",
            "ms",
            {
                "recovery on": numbers(on),
                "off": numbers(off),
                "off, a second model": numbers(again),
            },
            percent_more=statistics.median(more),
            standard_error=_standard_error(more),
            percent_between_the_two_without=statistics.median(none),
            its_standard_error=_standard_error(none),
        )


def checkpoints(seconds: int) -> None:
    """A checkpoint is written in the background, by a thread that shares the chief's one core."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"TFRUN_CHECKPOINT_DIR": folder, "TFRUN_CHECKPOINT_EVERY": str(EVERY)}
        *measured, share = tfrun(2, "recovery_cost.py", "checkpoints", str(seconds), **options)
    for what, (on, off) in _by_turns(measured, 2):
        each = [EPOCH * (a - b) for a, b in zip(on, off, strict=True)]
        lost = statistics.median(each)
        record(
            f"checkpoints, {what}",
            "ms a step",
            {"an epoch with one": numbers(on), "without": numbers(off)},
            milliseconds_each=lost,
            standard_error=_standard_error(each),
            seconds_apart_for_one_percent=lost / 10,
            percent_of_the_time_in_snapshots=100 * share,
        )


def _by_turns(measured: Sequence[float], sides: int) -> Iterator[tuple[str, list[list[float]]]]:
    half = len(measured) // 2
    for what, found in (
        ("elapsed", measured[:half]),
        ("CPU time of a worker", measured[half:]),
    ):
        yield what, [list(found[side::sides]) for side in range(sides)]


def _percent(more: Sequence[float], than: Sequence[float]) -> list[float]:
    return [100 * (a / b - 1) for a, b in zip(more, than, strict=True)]


def _standard_error(values: list[float]) -> float:
    """Of their median, by the bootstrap."""
    chance = random.Random(0)
    again = (chance.choices(values, k=len(values)) for _ in range(1000))
    return statistics.stdev(map(statistics.median, again))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
