"""Batches that Python makes: every worker trains its part of the same ones, and none is lost."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras import tree
from workers import SCRIPTS, environment, results_of

# What plain Keras gives depends on how far it happens to have read ahead.
OURS = {
    # Each call begins with the next batch.
    "nothing is lost between calls": [[1.5, 5.5, 9.5], [[12, 1], [12, 1]], 18.0],
    # Each validation begins with the two batches that Keras has looked at, and goes on.
    "nothing is lost between validations": 8.0,
    # Steps 0 to 3, then 4 to 23.
    "nothing is lost in an epoch that ends early": 24.0,
}
# Of three, the shares are uneven. What one worker does is what plain Python does: every day
# tests/scripts/test_alone.py holds scripts of all kinds against it.
WORKERS = [*(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 2)), 3]


@functools.cache
def plain(script: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        subprocess.run(
            [sys.executable, SCRIPTS / script],
            env=environment({"TFRUN_TEST_OUT": str(out), "TF_CPP_MIN_LOG_LEVEL": "2"}),
            check=True,
            timeout=200,
        )
        return json.loads(out.read_text())


def check(script: str, workers: int, ours: dict[str, Any]) -> None:
    expected = {**plain(script), **ours}
    for seen in results_of(script, workers, timeout=400):
        assert seen.keys() == expected.keys()
        for name, value in expected.items():
            theirs, mine = tree.flatten(value), tree.flatten(seen[name])
            if isinstance(value, str):
                assert mine == theirs, name
                continue
            assert len(theirs) == len(mine), name
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", WORKERS)
def test_any_number_of_workers_trains_what_plain_keras_does(workers: int) -> None:
    check("data_python.py", workers, OURS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", WORKERS)
def test_little_data_and_none_and_single_batches(workers: int) -> None:
    nothing = {
        f"nothing {done}{given}": "TFRUN-601:"
        for done in ("trained", "evaluated", "predicted")
        for given in ("", ", pipeline")
    }
    check("data_small.py", workers, nothing)


@pytest.mark.parametrize("workers", [1, 2])
def test_data_may_be_made_above_the_strategy(workers: int) -> None:
    (alone,) = results_of("data_early.py", 1, timeout=200)
    for seen in results_of("data_early.py", workers, timeout=200):
        assert seen.keys() == {"loss", "val_loss"}
        np.testing.assert_allclose(seen["loss"], alone["loss"], rtol=1e-5)
        np.testing.assert_allclose(seen["val_loss"], alone["val_loss"], rtol=1e-5)
