"""Pins a worker to the core of its rank; imported before TensorFlow makes its threads.

BENCH_THREADS is how many those are: 1.
"""

import json
import os
from pathlib import Path

import quantities

RANK = int(os.environ.get("RANK", "0"))
_cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {_cores[RANK % len(_cores)]})
_threads = os.environ.get("BENCH_THREADS", "1")
os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = _threads


def write(numbers: list[float]) -> None:
    """Gives rank 0's numbers to the harness."""
    quantities.write(RANK)
    if RANK == 0:
        Path(os.environ["BENCH_OUT"]).write_text(json.dumps(numbers))
