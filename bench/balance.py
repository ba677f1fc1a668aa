"""`fit` of the seed CNN with 6 replicas on 2 workers, one of half a core, with --balance auto.

Goal: 1.35 times the steps a second. 1.5 is what four replicas and two can have.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from harness import DidNotRun, compare_what_runs, record, tfrun

CGROUPS = Path("/sys/fs/cgroup")
PERIOD = 20_000  # microseconds: less than a replica's step, as a slower core would be


def main(repeats: int = 3) -> None:
    results, not_run = compare_what_runs(
        {f"--balance {kind}": lambda kind=kind: trained(kind) for kind in ("off", "auto")}, repeats
    )
    ratios = {}
    if not not_run:
        before, after = (numbers["median"] for numbers in results.values())
        ratios["off_over_auto"] = before / after
    record("balance", "ms a step", results, not_run=not_run, **ratios)


def trained(balance: str) -> list[float]:
    """Milliseconds a step, by epoch, after the first one."""
    options = {"TFRUN_REPLICAS": "6", "TFRUN_BALANCE": balance}
    with half_a_core() as processes:
        return tfrun(2, "balance.py", **options, BENCH_HALF=str(processes))


@contextlib.contextmanager
def half_a_core() -> Iterator[Path]:
    """The file that a process writes its number to, to have half a core from then on.

    Raises:
      DidNotRun: only root can say so.
    """
    old = CGROUPS / "cpu"  # of the first version of control groups
    group = (old if old.is_dir() else CGROUPS) / f"tfrun-bench-{os.getpid()}"
    try:
        group.mkdir()
        if old.is_dir():
            (group / "cpu.cfs_period_us").write_text(str(PERIOD))
            (group / "cpu.cfs_quota_us").write_text(str(PERIOD // 2))
        else:
            (group / "cpu.max").write_text(f"{PERIOD // 2} {PERIOD}")
    except OSError as error:
        raise DidNotRun(f"a process cannot be held to half a core here: {error}") from error
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
