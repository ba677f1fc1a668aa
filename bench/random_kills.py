"""30 kills at random moments among 4 workers, also while the job re-forms: `tfrun drill`.

Goal: the job finishes, and its weights are those of an undisturbed one, bit for bit.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import harness
from harness import SCRIPTS, numbers, record

SECONDS = 1200.0


def main(workers: int = 4, kills: int = 30, epochs: int = 24, seed: int | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "found.json")
        options = ["-n", str(workers), "--faults", "random", "--kills", str(kills)]
        options += ["--seed", str(seed)] if seed is not None else []
        options += ["--run-dir", f"{folder}/runs", "--json", str(found)]
        drill = subprocess.run(
            [Path(sys.executable).with_name("tfrun"), "drill", *options]
            + [SCRIPTS / "recovery.py", "keras3", str(epochs)],
            env={**harness._environment(), "BENCH_STEPS": folder},
            timeout=SECONDS,
            check=False,
        )
        if drill.returncode:
            raise SystemExit(f"the drill ended with {drill.returncode}")
        (row,) = json.loads(found.read_text())["rows"]
    seconds = [number for number in row["first_steps"] if number is not None]
    name = f"random kills, {workers} workers, to first new step"
    record(name, "s", {f"{kills} kills in one job": numbers(seconds)})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
