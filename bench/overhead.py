"""One process's `fit` under `tfrun -n 1` and without tfrun. Goal: less than 1 % of a step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import quantiles

from harness import by_hand, numbers, record, tfrun

RUNS: dict[str, Callable[[str], list[float]]] = {
    "tfrun -n 1": lambda workload: tfrun(1, "overhead.py", workload),
    "python": lambda workload: by_hand(1, "overhead.py", workload),
}


def main(repeats: int = 5, workload: str = "cnn") -> None:
    elapsed: dict[str, list[float]] = {name: [] for name in RUNS}
    cpu: dict[str, list[float]] = {name: [] for name in RUNS}
    for _ in range(repeats):
        for name, run in RUNS.items():
            found = run(workload)
            half = len(found) // 2
            # What else the machine does disturbs some epochs; what tfrun does is in all of them.
            elapsed[name].append(quantiles(found[:half])[0])
            cpu[name].append(quantiles(found[half:])[0])
    for what, samples in (("elapsed", elapsed), ("processor time", cpu)):
        results = {name: numbers(values) for name, values in samples.items()}
        ours, theirs = (found["median"] for found in results.values())
        percent = 100 * (ours / theirs - 1)
        record(f"a step of one process, {what}", "ms", results, percent_more=percent)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
