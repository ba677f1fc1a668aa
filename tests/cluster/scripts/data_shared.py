"""Loads arrays by a function or in each worker; prints what each worker holds of them."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import psutil

import tfrun
from tfrun.data.dataset import Dataset

how, out, megabytes = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
calls = 0


def load():
    global calls
    calls += 1
    rows = megabytes * 1024
    x = np.repeat(np.arange(rows, dtype=np.float32)[:, None], 256, axis=1)
    if how == "different" and tfrun.world().rank == 1:
        x = x[: rows // 2]
    return {"x": x, "y": np.arange(len(x))}


arrays = load if how == "function" else load()
train = Dataset.from_arrays(arrays, batch_size=256, shuffle=True)
del arrays
total = sum(int(batch["x"][:, 0].numpy().astype(int).sum()) for batch in train.tf_data())
rows = train.samples
assert total == sum(range(rows)), total

here = psutil.Process()
shared = [m for m in here.memory_maps(grouped=False) if "tfrun-" in m.path]
numbers = {
    "calls": calls,
    "pss": sum(m.pss for m in shared),
    "rss": sum(m.rss for m in shared),
    "path": shared[0].path if shared else "",
}
(out / f"{tfrun.world().rank}.json").write_text(json.dumps(numbers))
if os.environ.get("WAIT_FOR"):
    import time

    while len(list(out.glob("*.json"))) < tfrun.world().size:
        time.sleep(0.05)
    shared = [m for m in here.memory_maps(grouped=False) if "tfrun-" in m.path]
    numbers["pss"] = sum(m.pss for m in shared)
    (out / f"{tfrun.world().rank}.pss").write_text(json.dumps(numbers))
    while len(list(out.glob("*.pss"))) < tfrun.world().size:
        time.sleep(0.05)
