# ruff: noqa: PTH123, SIM115
"""All write a file, and one is killed while it does; then all start again."""

import os
import signal
import sys
import time
from pathlib import Path

OUT, VICTIM = Path(sys.argv[1]), int(sys.argv[2])
RANK, SIZE, ROUND = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "TFRUN_ROUND"))
PATHS = [OUT / "text", OUT / "binary"]


def write(path, part=1.0):
    text = f"{RANK}\n" * int(100_000 * part)
    if path.name == "binary":
        file = open(path, "wb")
        file.write(text.encode())
    else:
        file = open(path, "w")
        file.write(text)
    return file


def wait_for(rank):
    until = time.monotonic() + 30
    while not (OUT / f"{rank}.here").exists():
        assert time.monotonic() < until, f"{rank} does not come"
        time.sleep(0.005)


if ROUND == 0:
    victim, others = RANK == VICTIM, [rank for rank in range(SIZE) if rank != VICTIM]
    if victim:
        for rank in others:
            wait_for(rank)
        halves = [write(path, 0.5) for path in PATHS]  # more than any buffer holds
        os.kill(os.getpid(), signal.SIGKILL)
    for path in PATHS:
        write(path).close()
    os.close(os.open(OUT / f"{RANK}.here", os.O_CREAT | os.O_WRONLY))
    signal.pause()  # until the round ends
if RANK == 0:
    for path in PATHS:
        lines = path.read_text().splitlines()
        whole = len(lines) == 100_000 and len(set(lines)) == 1
        print(f"{path.name}: {'whole' if whole else 'torn'}, of worker {lines[0]}")
    os.close(os.open(OUT / "checked.here", os.O_CREAT | os.O_WRONLY))
wait_for("checked")
for path in PATHS:
    write(path).close()
