"""What recovery costs a step while nothing fails. Goals: the state in memory under 1 % of the step
time, checkpoints on disk under 1 %.

Both are measured inside one job, by turns, so that what else the machine does hits both sides.
"""

from __future__ import annotations

import statistics
import sys
import tempfile

from harness import numbers, record, tfrun

EVERY = 200  # steps from checkpoint to checkpoint
EPOCH = 100  # steps, of which those of every other epoch have a checkpoint among them


def main(pairs: int = 24) -> None:
    state(pairs)
    checkpoints(pairs)


def state(pairs: int) -> None:
    """What is done at every step, and the snapshots in memory every now and then."""
    measured = tfrun(2, "recovery_cost.py", "state", str(pairs))
    for what, on, off in _by_turns(measured):
        more = [100 * (a / b - 1) for a, b in zip(on, off, strict=True)]
        # Which side came first changes from pair to pair.
        more = [statistics.fmean(two) for two in zip(more[0::2], more[1::2], strict=True)]
        record(
            f"a step without faults, {what}",
            "ms",
            {"recovery on": numbers(on), "off": numbers(off)},
            percent_more=statistics.median(more),
            standard_error=_standard_error(more),
        )


def checkpoints(pairs: int) -> None:
    """A checkpoint is written in the background, by a thread that shares the chief's one core."""
    with tempfile.TemporaryDirectory() as folder:
        options = {"TFRUN_CHECKPOINT_DIR": folder, "TFRUN_CHECKPOINT_EVERY": str(EVERY)}
        measured = tfrun(2, "recovery_cost.py", "checkpoints", str(pairs), **options)
    for what, on, off in _by_turns(measured):
        each = [EPOCH * (a - b) for a, b in zip(on, off, strict=True)]
        lost = statistics.median(each)
        record(
            f"checkpoints, {what}",
            "ms a step",
            {"an epoch with one": numbers(on), "without": numbers(off)},
            milliseconds_each=lost,
            standard_error=_standard_error(each),
            seconds_apart_for_one_percent=lost / 10,
        )


def _by_turns(measured: list[float]) -> list[tuple[str, list[float], list[float]]]:
    elapsed, cpu = measured[: len(measured) // 2], measured[len(measured) // 2 :]
    return [
        ("elapsed", elapsed[0::2], elapsed[1::2]),
        ("CPU time of a worker", cpu[0::2], cpu[1::2]),
    ]


def _standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / len(values) ** 0.5


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
