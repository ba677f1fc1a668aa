"""The ledger of jobs whose workers die, beside weights that count how often a sample was used."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by

from tfrun.data.ledger.proof import LedgerReport, examine

# (training, steps): see scripts/ledger_deaths.py.
STEPS = ((0, 24), (1, 24), (2, 8), (3, 16))
# An epoch of the first data, each of the second's, and the one of the third's.
EPOCHS = [("data0", epoch) for epoch in range(3)]
EPOCHS += [("data1", epoch) for epoch in range(5)] + [("data2", 0)]


def run(folder: Path, workers: int, expected: int = 0, **env: str) -> str:
    """Runs the script in the job directory `run`; returns the terminal."""
    command = [TFRUN, "-n", str(workers), "--seed", "5", "--ledger", "--max-restarts", "9"]
    command += ["--run-dir", "run", "--checkpoint-every", "5"]
    return shown_by(
        [*command, str(SCRIPTS / "ledger_deaths.py"), "counts.json"],
        env,
        cwd=folder,
        timeout=180,
        exit_code=expected,
    )


def check(folder: Path) -> LedgerReport:
    """The weights have seen each sample once an epoch, and the ledger says the same."""
    # In the short last batch of the seven epochs that `fit` has trained a use counts seven times.
    counts = json.loads((folder / "counts.json").read_text())
    more = [round((count - len(EPOCHS)) / 6, 2) for count in counts]
    assert all(times == int(times) >= 0 for times in more), counts
    assert sum(more) == 2 * 7
    report = examine(folder / "run")
    assert report.exact, report
    assert [(one.data, one.epoch) for one in report.epochs] == EPOCHS
    assert all(one.complete and one.consumed == 100 and one.steps == 8 for one in report.epochs)
    assert report.no_tape == ()
    return report


def random_kills(seed: int, workers: int, rounds: int) -> str:
    """One or two workers in each of some rounds, each time later in the script."""
    chance = random.Random(seed)
    moments = sorted(chance.sample([(t, s) for t, count in STEPS for s in range(count)], rounds))
    kills = []
    for round_, (training, step) in enumerate(moments):
        step -= step % 8 % 3 if training == 0 else 0  # where an execution begins
        for rank in chance.sample(range(workers), 1 if chance.random() < 0.7 else 2):
            kills.append(f"{round_}:{rank}:{training}:{step}")
    return " ".join(kills)


@pytest.mark.timeout(220)
@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_workers_that_die_at_random_moments(tmp_path: Path, workers: int) -> None:
    seed = random.SystemRandom().randrange(10**6)
    kills = random_kills(seed, workers, rounds=4)
    print("seed", seed, "kills", kills)
    shown = run(tmp_path, workers, KILLS=kills)
    assert check(tmp_path).rounds >= 4, shown
    done = subprocess.run(
        [TFRUN, "ledger", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    # What `evaluate` and the validations have read is no matter of the ledger's.
    assert "every sample exactly once · 9 epochs" in done.stdout


@pytest.mark.timeout(400)
def test_a_second_job_goes_on_from_an_older_checkpoint(tmp_path: Path) -> None:
    """The first job's script ends with an error in its second training; the steps since the
    checkpoint are done again, on another number of workers, and count once."""
    run(tmp_path, 2, expected=3, EXIT="1:13", KILLS="")
    assert examine(tmp_path / "run").epochs[-1].complete is False
    run(tmp_path, 3)
    report = check(tmp_path)
    assert report.jobs == 2
    assert report.epochs[0].worlds == (2,)
    assert report.epochs[-1].worlds == (3,)
