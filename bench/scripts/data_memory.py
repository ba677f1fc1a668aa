"""Reads arrays of 1 GB on every worker; writes the memory of all processes of the job, in GB.

data_memory.py none|shared|copied. It is counted by proportional set size: a page that N processes
have mapped counts 1/N in each of them (Documentation/filesystems/proc.rst of Linux).
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import tensorflow as tf

import tfrun

ROWS, WIDTH, DEADLINE = 1 << 18, 1 << 10, 240  # 1 GB of float32
what, here = sys.argv[1], tfrun.world()
folder = Path(os.environ["TFRUN_RUN_DIR"], "memory")


def arrays():
    return np.full((ROWS, WIDTH), here.rank + 1, np.float32)


def meet(name: str) -> None:
    """Waits until all workers are here."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}-{here.rank}").touch()
    begin = time.monotonic()
    while len(list(folder.glob(f"{name}-*"))) < here.size:
        if time.monotonic() > begin + DEADLINE:
            raise SystemExit(f"not all workers came to {name}")
        time.sleep(0.05)


def proportional() -> float:
    """Gigabytes of this job's launcher and all that it has started."""
    this = psutil.Process()
    launcher = next(p for p in reversed(this.parents()) if "--run-dir" in p.cmdline())
    total = 0
    for process in (launcher, *launcher.children(recursive=True)):
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / (1 << 20)


made = tf.data.Dataset.range(10)
if what == "shared":
    # One worker makes them for all; each then reads every row, not only its own.
    made = tfrun.Dataset.from_arrays(arrays, batch_size=1024).tf_data()
elif what == "copied":
    made = tf.data.Dataset.from_tensor_slices(arrays()).batch(1024)
total = made.reduce(np.float64(0), lambda sum, one: sum + tf.cast(tf.reduce_sum(one), tf.float64))
if what == "shared":
    assert int(total) % (ROWS * WIDTH) == 0 and int(total) > 0, total
meet("read")
if here.rank == 0:
    Path(os.environ["BENCH_OUT"]).write_text(json.dumps([proportional()]))
meet("counted")
