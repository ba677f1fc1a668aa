"""--balance auto: replicas move away from a slow worker, and no bit depends on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scripts" / "of_balance.py"
MODELS = ("arrays", "pipeline", "dataset", "generator")
OPTIONS = ("--replicas", 4, "--threads-per-worker", 1)
SECONDS = 300


def trained(jobs, *options: object, models=MODELS, **env: str):
    """The bits of each model, how often replicas have moved in it, and what the job has said."""
    job = jobs.run(*options, *OPTIONS, SCRIPT, *models, env=env, timeout=SECONDS)
    assert job.returncode == 0, job.stderr[-3000:]
    bits = re.findall(r"BITS (.*)", job.stdout)
    moves = {name: int(count) for name, count in re.findall(r"MOVED (\w+) (\d+)", job.stdout)}
    assert list(moves) == [line.split()[0] for line in bits] == list(models)
    return bits, moves, job.stderr


@pytest.mark.timeout(4 * SECONDS)
def test_replicas_move_and_no_bit_changes(jobs):
    balances = ("--balance", "auto")
    still, moves, _ = trained(jobs, "-n", 2)
    assert not any(moves.values())
    bits, moves, told = trained(jobs, "-n", 2, *balances, "--ledger", "--run-dir", "run", SLOW="1")
    assert bits == still
    assert all(moves.values()), moves  # the slow one is another with each model
    assert told.count("--balance auto: the workers hold") == sum(moves.values())
    events = (jobs.directory / "run/events.jsonl").read_text()
    assert len(re.findall('"notice".*--balance auto: the', events)) == sum(moves.values())
    ledger = jobs.run("ledger", "run")
    assert "every covered sample exactly once" in ledger.stdout, ledger.stdout + ledger.stderr
    bits, moves, _ = trained(jobs, "-n", 3, *balances, SLOW="1", TFRUN_SHARED_MEMORY="0")
    assert bits == still and sum(moves.values()), moves


@pytest.mark.timeout(3 * SECONDS)
@pytest.mark.parametrize("model", ["arrays", "pipeline"])
def test_a_death_after_a_move_changes_no_bit(jobs, model):
    still, _, _ = trained(jobs, "-n", 2, models=[model])
    options = ("-n", 2, "--balance", "auto", "--max-restarts", 1)
    bits, _, told = trained(jobs, *options, models=[model], SLOW="1", DIES_AT="55")
    assert "--balance auto: the workers hold" in told.partition("SIGKILL")[0]
    assert bits == still
