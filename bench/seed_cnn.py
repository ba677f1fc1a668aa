"""`fit` of the seed CNN, 2 workers, against legacy Keras. Goal: 16 ms over TCP, 14 in memory."""

import sys
from collections.abc import Callable

from harness import apart, by_hand, compare, legacy_python, record, tfrun

TCP = {"TFRUN_COMMUNICATION": "host", "TFRUN_SHARED_MEMORY": "0"}
OURS = {
    "shared memory": {"TFRUN_COMMUNICATION": "host"},
    "TCP": TCP,
    "shared memory, auto": {"TFRUN_COMMUNICATION": "host", "TFRUN_STEPS_PER_EXECUTION": "auto"},
    "TCP, auto": {**TCP, "TFRUN_STEPS_PER_EXECUTION": "auto"},
    "ring": {"TFRUN_COMMUNICATION": "ring"},
}


def main(repeats: int = 5) -> None:
    legacy = legacy_python()
    contenders = {f"tfrun, {name}": _ours(options) for name, options in OURS.items()}
    contenders["legacy Keras, TensorFlow's MWMS"] = lambda: by_hand(
        2, "seed_cnn.py", "legacy", python=legacy
    )
    contenders["two workers of two jobs"] = lambda: apart(2, "seed_cnn.py", "keras3")
    contenders["one worker alone"] = lambda: tfrun(1, "seed_cnn.py", "keras3")
    results = compare(contenders, repeats)
    *ours, theirs, jobs, alone = (numbers["median"] for numbers in results.values())
    ratios = {}
    for name, milliseconds in zip(OURS, ours, strict=True):
        key = name.replace(",", "").replace(" ", "_")
        ratios[f"{key}_over_legacy"] = theirs / milliseconds
        ratios[f"{key}_times_one_worker"] = milliseconds / alone
    record("seed CNN", "ms a step", results, **ratios, two_jobs_times_one_worker=jobs / alone)


def _ours(options: dict[str, str]) -> Callable[[], list[float]]:
    return lambda: tfrun(2, "seed_cnn.py", "keras3", **options)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
