"""Loops of the script's own where a worker holds several replicas: the bits of one on each.

The same number of threads, too: see test_replicas.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "loop_replicas.py"
OPTIONS = ("--replicas", 4, "--threads-per-worker", 1)
LOOPS = ("data", "tf_data", "distributed", "ours", "plain", "gan", "before")
SECONDS = 200


def trained(jobs, *options: object, loops=LOOPS, **env: str):
    """The bits of each loop, and the job."""
    job = jobs.run(*options, *OPTIONS, SCRIPT, *loops, env=env, timeout=SECONDS)
    assert job.returncode == 0, job.stderr[-3000:]
    assert "Traceback" not in job.stderr and "AutoGraph" not in job.stderr, job.stderr[-3000:]
    bits = re.findall(r"BITS (.*)", job.stdout)
    assert [line.split()[0] for line in bits] == list(loops)
    return bits, job


@pytest.mark.timeout(4 * SECONDS)
def test_one_to_four_workers_compute_the_same_bits(jobs):
    """Also with BatchNormalization in a last batch that has no sample for one replica."""
    alone, _ = trained(jobs, "-n", 1)
    # Whoever reads it, and whether the strategy or TrainState divides it.
    assert alone[0].split()[1] == alone[3].split()[1]
    assert alone[1].split()[1] == alone[2].split()[1]
    for workers, loops in ((2, LOOPS[3:]), (3, LOOPS[:2]), (4, ("plain", "before"))):
        found, _ = trained(jobs, "-n", workers, loops=loops)
        wanted = [line for line in alone if line.split()[0] in loops]
        if workers == 4:  # one replica each: TensorFlow adds up metrics that the body updates
            found, wanted = ([line.split()[:2] for line in lines] for lines in (found, wanted))
        assert found == wanted, f"{workers} workers"


@pytest.mark.timeout(3 * SECONDS)
def test_a_death_changes_no_bit_and_the_ledger_is_exact(jobs):
    undisturbed, _ = trained(jobs, "-n", 2, "--sync-check", 3, loops=("data",))
    options = ("--max-restarts", 1, "--ledger", "--run-dir", "run")
    died, job = trained(jobs, "-n", 2, *options, loops=("data",), DIES_AT="9")
    assert "SIGKILL" in job.stderr and died == undisturbed
    ledger = jobs.run("ledger", "run")
    assert "every covered sample exactly once" in ledger.stdout, ledger.stdout + ledger.stderr


@pytest.mark.timeout(3 * SECONDS)
def test_replicas_move_and_no_bit_changes(jobs):
    still, _ = trained(jobs, "-n", 2, loops=("balanced",))
    bits, job = trained(jobs, "-n", 2, "--balance", "auto", loops=("balanced",), SLOW="1")
    assert "--balance auto: the workers hold 1, 3 instead of 2, 2 replicas" in job.stderr
    assert bits == still


PIECE = "that the loop has made of one replica's part of the batch"
REFUSED = {
    "a tensor": f"TFRUN-518: a step is given a tensor {PIECE}",
    "an array": f"TFRUN-518: a step is given an array {PIECE}",
    "an earlier tensor": f"TFRUN-518: a step is given a tensor {PIECE}",
    "an earlier loss": f"TFRUN-518: a step is given a tensor {PIECE}",
    "a sum": f"TFRUN-518: strategy.reduce is given a value {PIECE}",
    "a changed loss": f"TFRUN-518: strategy.reduce is given a value {PIECE}",
    "a mean over rows": f"TFRUN-518: strategy.reduce is given a value {PIECE}",
    "a function of Python": "TFRUN-518: the script calls strategy.run itself",
    "no part of it": "TFRUN-518: the script calls strategy.run itself",
    "a metric's tensor": f"TFRUN-518: a metric is given a tensor {PIECE}",
    "a metric's array": f"TFRUN-518: a metric is given an array {PIECE}",
    "a metric's number": f"TFRUN-518: a metric is given a number {PIECE}",
    "a step on a batch": "TFRUN-518: model.train_on_batch takes this worker's own batch",
    "an iterator": "TFRUN-107: distributed data that a tf.function iterates over",
    "a loop in a function": "TFRUN-107: distributed data that a tf.function iterates over",
    "fit": "TFRUN-107: a distributed dataset gives each worker one part",
    "evaluate": "TFRUN-107: a distributed dataset gives each worker one part",
    "predict": "TFRUN-107: a distributed dataset gives each worker one part",
    "commit": "TFRUN-518: the script calls strategy.run itself",
}


def test_what_nobody_could_compute_for_the_others_is_refused(jobs):
    job = jobs.run("-n", 1, *OPTIONS, SCRIPT, "refused")
    assert job.returncode == 0, job.stderr[-3000:]
    found = dict(re.findall(r"TOLD (.*?) \| (.*)", job.stdout))
    assert list(found) == list(REFUSED)
    for name, said in REFUSED.items():
        assert found[name].startswith(said), name
        assert "leave out --replicas" in found[name] or "Leave out --replicas" in found[name], name
