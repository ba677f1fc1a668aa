"""TensorFlow's own checkpoints and SavedModels in a job of several workers."""

from __future__ import annotations

import pytest
from workers import run_workers

# What two workers do, each but the first of three does too.
WORKERS = [1, pytest.param(2, marks=pytest.mark.thorough), 3]


@pytest.mark.parametrize("n", WORKERS)
def test_the_chief_writes_and_all_know(tmp_path, n):
    results = run_workers("checkpoints_of_all.py", n, {"TEST_FOLDER": str(tmp_path)}, timeout=150)
    chief, *others = (result["found"] for result in results)
    assert chief["managed"] == {
        "saved": [f"managed/ckpt-{i}" for i in (1, 2, 3, 4)],
        "latest": ["managed/ckpt-4"],
        "kept": ["managed/ckpt-3", "managed/ckpt-4"],
        "again": ["managed/ckpt-3", "managed/ckpt-4"],
        "counter": 4,
        "off": 0.0,
    }
    assert chief["every"] == [["every/at-5", "every/at-7", "every/at-3"]] * 2 + [5]
    assert chief["plain"] == ["plain/c-1", "plain/c-2", "plain/written"]
    assert chief["later"] == ["later/c-1"]
    assert chief["state"] == "/plain/c-2"
    assert (chief["module"], chief["archive"]) == (9, 2)
    assert chief["tutorial"] == [["tutorial/ckpt-2"], 0.0]
    assert chief["branch"] == 8
    assert chief["alone"] == ["alone/c-2"]
    assert chief["total"] == chief["restored"] == n * (n + 1) / 2
    assert chief["refused"] == (None if n == 1 else "TFRUN-505")
    for found in others:
        assert {**found, "refused": chief["refused"]} == chief
    for result in results:
        assert result["temporary"] == []
        assert result["said"] == (1 if result is not results[0] else 0)
    assert results[0]["files"] == sorted(
        [
            "alone/c-1.index",
            "alone/c-2.index",
            "branch/chief.index",
            "every/at-3.index",
            "every/at-5.index",
            "every/at-7.index",
            "fit-chief/ckpt-2.index",
            "fit/ckpt-4.index",
            "later/c-1.index",
            "managed/ckpt-3.index",
            "managed/ckpt-4.index",
            "plain/c-1.index",
            "plain/c-2.index",
            "plain/written.index",
            "total/c-1.index",
            "tutorial/ckpt-2.index",
            *(f"branch/worker-{rank}.index" for rank in range(1, n)),
            *(f"only-{rank}/c.index" for rank in range(1, n)),
        ]
    )


@pytest.mark.parametrize("n", WORKERS)
def test_loading_waits_for_the_chief(tmp_path, n):
    results = run_workers("save_then_load.py", n, {"TEST_FOLDER": str(tmp_path)}, timeout=150)
    ways = ("keras", "tf.keras", "weights", "exported", "again")
    for result in results:
        assert result["same"] == dict.fromkeys(ways, True)
        assert result["failed"] == "FileNotFoundError"
        assert result["code"] == (None if n == 1 else "TFRUN-504")
        assert result["history"] == results[0]["history"]
    assert results[0]["files"] == ["again.keras", "m.keras", "m.weights.h5", "t.keras"]


def test_what_the_chief_alone_saves_is_waited_for(tmp_path):
    environment = {"TEST_FOLDER": str(tmp_path), "TFRUN_COMMUNICATION": "host"}
    results = run_workers("chief_saves.py", 2, environment, timeout=150)
    found = {"saved": True, "again": True, "module": 3.0, "none": "not found"}
    assert results == [found, {**found, "else": False}]
