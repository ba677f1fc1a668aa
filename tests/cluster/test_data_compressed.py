"""GZIP files, whole ones for each worker, in a real `fit`; and what the ledger says of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from workers import TFRUN

SCRIPT = Path(__file__).with_name("scripts") / "data_compressed.py"
STEPS = 5
# Worker 0 reads the first and the third file, worker 1 the second: 28 and 12 of 40 records,
# spread over the steps: their sizes, worker by worker.
SHARES = {0: (6, 6, 6, 5, 5), 1: (3, 3, 2, 2, 2)}
RECORDS = {0: [*range(20), *range(32, 40)], 1: [*range(20, 32)]}


def uses() -> list[float]:
    """What two epochs take from each record's weight: 1 / (samples of its step) each."""
    sizes = [sum(share[step] for share in SHARES.values()) for step in range(STEPS)]
    taken = [0.0] * 40
    for worker, share in SHARES.items():
        records = iter(RECORDS[worker])
        for step, count in enumerate(share):
            for _ in range(count):
                taken[next(records)] = 2 / sizes[step]
    return taken


def test_each_worker_reads_files_of_its_own_and_every_record_once(jobs) -> None:
    done = jobs.run("-n", 2, "--ledger", "--run-dir", "run", SCRIPT)
    assert done.returncode == 0, done.stderr
    counts = json.loads((jobs.directory / "counts.json").read_text())
    assert counts == [pytest.approx(use, rel=1e-5) for use in uses()]
    proof = subprocess.run(
        [TFRUN, "ledger", "run"],
        cwd=jobs.directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    shown = proof.stdout.splitlines()
    covered = [line for line in shown if "each exactly once" in line]
    assert len(covered) == 1 and "8 of 8 samples in 2 steps" in covered[0], proof.stdout
    notes = [line.partition(":")[2] for line in shown if line.startswith("NOT COVERED: ")]
    assert len(notes) == 3, proof.stdout
    for what in (', shard="FILE"', "a tf.data pipeline", "from experimental_distribute"):
        assert any(what in note for note in notes), proof.stdout
