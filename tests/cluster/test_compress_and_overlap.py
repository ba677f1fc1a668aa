"""`--compress` and `--overlap`: the same bits on every worker, also after some have died."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from workers import SCRIPTS, TFRUN, shown_by

# "round:rank:epoch:batch", see scripts/travelling.py.
KILLS = "0:1:1:4 1:0:2:0 2:1:2:14"


@functools.cache
def run(
    way: str,
    kills: str = "",
    workers: int = 2,
    memory: str = "0",
    epochs: int = 3,
    overlap: str = "off",
    widths: str = "256",
) -> Any:
    """What each worker has found, and the terminal."""
    with tempfile.TemporaryDirectory() as folder:
        shown = shown_by(
            [TFRUN, "-n", str(workers), "--seed", "5", "--compress", way, "--overlap", overlap]
            + ["--run-dir", f"{folder}/run", str(SCRIPTS / "travelling.py")],
            {"TFRUN_COMMUNICATION": "host", "TFRUN_SHARED_MEMORY": memory, "KILLS": kills}
            | {"TEST_FOLDER": folder, "TEST_EPOCHS": str(epochs), "TEST_WIDTHS": widths},
            timeout=150,
        )
        paths = [Path(folder, f"{rank}.json") for rank in range(workers)]
        return [json.loads(path.read_text()) for path in paths], shown


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_workers_die_and_what_was_rounded_off_is_there() -> None:
    wanted, shown = run("bf16")
    assert "gradients travel as bfloat16" in shown
    found, shown = run("bf16", KILLS)
    assert {worker["weights"] for worker in [*wanted, *found]} == {wanted[0]["weights"]}, shown
    assert "3 restarts" in shown


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["bf16", "fp16"])
def test_digits_are_learnt_as_well_in_half_the_bytes(way: str) -> None:
    (plain, _), _ = run("off", epochs=12)
    (first, second), _ = run(way, epochs=12)
    assert first["weights"] == second["weights"] != plain["weights"]
    assert first["compressed"] == 12 * 15 and plain["compressed"] == 0
    assert 0.5 < first["sent"] / plain["sent"] < 0.56  # the rest: metrics, first values, evaluation
    assert abs(first["accuracy"] - plain["accuracy"]) < 0.02, (first, plain)
    assert plain["accuracy"] > 0.85


@pytest.mark.thorough
@pytest.mark.timeout(200)
def test_what_stays_in_memory_is_not_compressed() -> None:
    (plain, _), _ = run("off")
    (found, _), shown = run("bf16", memory="1")
    assert found["compressed"] == 0 and found["weights"] == plain["weights"]
    assert "gradients stay in this machine's memory and are not compressed" in shown


WIDE = "1024 1024"  # gradients in two packs


@pytest.mark.timeout(240)
def test_sums_that_begin_early_are_the_same_also_when_workers_die() -> None:
    (wanted, _), _ = run("off", widths=WIDE)
    (first, second), shown = run("off", KILLS, overlap="on", widths=WIDE)
    assert first["weights"] == second["weights"] == wanted["weights"], shown
    assert "3 restarts" in shown
    (whole, _), _ = run("off", widths=WIDE, overlap="on")
    assert whole["sums"] - wanted["sums"] == 3 * 15  # a pack more in each step
    assert whole["sent"] < 1.01 * wanted["sent"]


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_sums_that_begin_early_travel_compressed_too() -> None:
    (wanted, _), _ = run("bf16", widths=WIDE, overlap="on")
    (found, _), shown = run("bf16", KILLS, widths=WIDE, overlap="on")
    assert found["weights"] == wanted["weights"], shown
    assert wanted["compressed"] == 2 * 3 * 15
