"""`--scale-batch`: a script for one process trains as if its batch had been multiplied by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from workers import SCRIPTS, TFRUN, shown_by

from tfrun.observe.events import read_events

SCRIPT = SCRIPTS / "scale_batch.py"
ARRAYS = ("arrays", "default batch", "weights", "validates", "adam", "pair", "scaled")
RATES = ("schedule", "sets rate")
PIPELINES = ("pipeline", "mapped", "twice", "drops", "steps", "padded")
SECONDS = 150


SCALED = ("-n", "2", "--scale-batch")


def shown(folder: Path, *kinds: str, options: tuple[str, ...] = SCALED, exit_code: int = 0) -> str:
    command = [TFRUN, *options, "--run-dir", folder / "run", SCRIPT, folder / "job", "1", *kinds]
    return shown_by(command, {}, timeout=SECONDS, exit_code=exit_code)


def check(folder: Path, *kinds: str, n: int = 2) -> None:
    """Compares each worker with a plain run whose author has doubled the batch."""
    by_hand = [sys.executable, SCRIPT, folder / "hand", "2", *kinds]
    shown_by(by_hand, {}, timeout=SECONDS)
    names = ("hand0", *(f"job{rank}" for rank in range(n)))
    hand, *workers = (np.load(folder / f"{name}.npz") for name in names)
    assert set(hand.files) == set(workers[0].files)
    for name in hand.files:
        if name.endswith("learning_rate"):
            continue
        for found in workers:
            same = {"rtol": 1e-5, "atol": 1e-7, "err_msg": name}
            np.testing.assert_allclose(found[name], hand[name], **same)


@pytest.mark.parametrize("kinds", [ARRAYS, RATES, PIPELINES], ids="-".join)
@pytest.mark.timeout(2 * SECONDS + 30)
def test_it_is_as_multiplied_by_hand(kinds: tuple[str, ...], tmp_path: Path) -> None:
    text = shown(tmp_path, *kinds)
    if kinds == ARRAYS:
        head = "global batch 16 = 2 x 8 of the script · 8 a worker (2 workers) · learning rate"
        assert f"{head} 0.2 (linear rule: 0.1 at batch 8, warm-up of 7 steps)" in text, text
        assert f"{head} 0.0141421 (sqrt rule: 0.01 at batch 8, warm-up of 7 steps)" in text
    if kinds == RATES:
        how = "learning rate by PiecewiseConstantDecay x 2 (linear rule, warm-up of 7 steps)"
        assert how in text, text
    check(tmp_path, *kinds)


@pytest.mark.timeout(2 * SECONDS + 30)
def test_a_death_changes_no_number(tmp_path: Path) -> None:
    shown(tmp_path, "dies", options=("-n", "1:2", "--scale-batch"))
    told = [event["event"] for event in read_events(tmp_path / "run/events.jsonl")]
    assert "recovered" in told
    check(tmp_path, "dies")


@pytest.mark.timeout(3 * SECONDS + 30)
def test_a_job_that_goes_on_keeps_the_batch_that_it_began_with(tmp_path: Path) -> None:
    """On one worker, too: that one has twice the script's batch."""
    saves = ("--checkpoint-every", "5")
    shown(tmp_path, "dies", options=(*SCALED, *saves, "--max-restarts", "0"), exit_code=137)
    text = shown(tmp_path, "dies", options=("-n", "1", *saves))
    assert "the batch stays 2 times the script's, as when this job began" in text, text
    assert "continuing from the last checkpoint here, of step" in text
    assert "global batch 16 = 2 x 8 of the script · 1 worker" in text
    check(tmp_path, "dies", n=1)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("generator", "cannot enlarge these batches: generator makes its batches itself"),
        ("mirrored", "is for scripts that name no strategy, but this one has MirroredStrategy"),
        ("on batch", "enlarges the batches of fit, and model.train_on_batch updates weights"),
        ("stated", "tfrun.scaled_lr states batch=8, but --scale-batch makes it 16"),
    ],
)
def test_what_may_be_scaled_twice_or_not_at_all_is_refused(
    kind: str, says: str, tmp_path: Path
) -> None:
    text = " ".join(shown(tmp_path, kind, exit_code=1).replace("│", "").split())
    assert "TFRUN-107" in text and says in text and "scale_batch.py:" in text, text
