"""What `fit` of one process does around the train function, under tfrun and without: below 1 %?"""

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
    step: dict[str, list[float]] = {name: [] for name in RUNS}
    host: dict[str, list[float]] = {name: [] for name in RUNS}
    for _ in range(repeats):
        for name, run in RUNS.items():
            found = run(workload)
            half = len(found) // 2
            # What else the machine does disturbs some epochs; what tfrun does is in all of them.
            step[name].append(quantiles(found[:half])[0])
            host[name].append(quantiles(found[half:])[0])
    steps = {name: numbers(values) for name, values in step.items()}
    record("a step of one process", "ms", steps)
    results = {name: numbers(values) for name, values in host.items()}
    ours, theirs = (found["median"] for found in results.values())
    percent = 100 * (ours - theirs) / steps["python"]["median"]
    record("of it outside the train function", "ms", results, percent_of_a_step_more=percent)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
