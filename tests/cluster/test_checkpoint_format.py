"""Plain TensorFlow reads tfrun's checkpoints, and they hold what each worker had."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from workers import SCRIPTS, environment, run_workers

CASES = [
    "sequential_momentum",
    "functional_adam",
    "subclassed_moving_average",
    "loss_scale",
    "mixed_precision",
    "bfloat16_weights",
]
RUNS = [(n, case) for n in (1, 2) for case in CASES if (n, case) != (2, "bfloat16_weights")]
SECONDS = 150
LISTED = 2  # BatchNorm's statistics, in the list of layers of the subclassed model


@functools.cache
def outcome(workers: int) -> tuple[list[dict], list[dict]] | str:
    """What each worker wrote, and what plain TensorFlow read of it; or the failure."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            written = run_workers(
                "checkpoint_write.py", workers, {"TEST_CHECKPOINTS": folder}, SECONDS
            )
        except AssertionError as error:
            return str(error)
        return written, [restored(folder, rank, workers) for rank in range(workers)]


def restored(folder: str, rank: int, workers: int) -> dict:
    out = Path(folder, f"restored-{rank}.json")
    command = [sys.executable, SCRIPTS / "checkpoint_restore.py", out, folder, str(rank)]
    done = subprocess.run(
        [str(word) for word in command],
        env=environment({"WORLD_SIZE": str(workers)}),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return json.loads(out.read_text()) if done.returncode == 0 else {"failed": done.stdout[-5000:]}


def of(workers: int, case: str) -> list[tuple[dict, dict]]:
    found = outcome(workers)
    assert isinstance(found, tuple), found
    written, read = found
    assert "failed" not in read[0], read[0]["failed"]
    assert "failed" not in read[-1], read[-1]["failed"]
    return [(w[case], r[case]) for w, r in zip(written, read, strict=True)]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("workers", "case"), RUNS)
def test_plain_tensorflow_restores_it(workers: int, case: str) -> None:
    for written, read in of(workers, case):
        in_tensorflow = {n: written["values"][n] for n in written["in_tensorflow"]}
        assert {n: read["restored"][n] for n in in_tensorflow} == in_tensorflow
        assert read["counter"] == 1
        # Seed generators have no place in TensorFlow's part, nor layers in a model's list, unless
        # the optimizer leads to them.
        others = len(written["values"]) - len(in_tensorflow)
        assert others == (LISTED + 1 if case.startswith("subclassed") else 1)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("workers", "case"), RUNS)
def test_it_is_what_tensorflow_itself_would_write(workers: int, case: str) -> None:
    for written, read in of(workers, case):
        mine, own = read["tensors"]
        assert len(mine) > 10
        assert mine == own
        mine, own = read["continued"]
        assert mine == own
        mine, own = read["alone"]
        assert mine == own
        if not case.startswith("subclassed"):
            learned = {n: v for n, v in written["values"].items() if n in written["in_tensorflow"]}
            assert {n: v for n, v in learned.items() if n in mine} == {
                n: v for n, v in mine.items() if n in learned
            }


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("workers", "case"), RUNS)
def test_tfrun_reads_all_of_it(workers: int, case: str) -> None:
    for written, _ in of(workers, case):
        assert written["read"] == written["values"]
        assert written["dtypes_kept"]
        assert written["trained_on"]  # else the values would prove nothing


def test_every_case_is_named_here() -> None:
    source = (SCRIPTS / "checkpoint_models.py").read_text()
    assert source.count("\n@case\n") == len(CASES)
