"""Keras's callbacks, saving and progress on two real workers."""

from __future__ import annotations

import functools
import json
import math
import re
import sys
from typing import Any

import pytest
from workers import SCRIPTS, TFRUN, results_of, run_workers, shown_by

pytestmark = pytest.mark.timeout(300)
# Each leaves the worker as it was: one job has them all.
TOGETHER = [
    *("writers", "tensorboard", "chief_only", "transparent", "decide", "stop"),
    *("steps_per_execution", "saving", "restore"),
]


def on_two_workers(script, folder, timeout=120):
    chief, worker = run_workers(
        f"callbacks_{script}.py", 2, {"TEST_FOLDER": str(folder)}, timeout=timeout
    )
    return chief, worker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("together"))


def together(script: str, folder: str) -> list[dict[str, Any]]:
    env = {"TEST_FOLDER": folder, "TEST_SCRIPTS": " ".join(TOGETHER)}
    return [found[script] for found in results_of("callbacks_together.py", 2, timeout=250, **env)]


def test_writers_write_once(folder):
    chief, worker = together("writers", folder)
    assert chief["saves"] == [
        "best.weights.h5",
        "epoch-1.keras",
        "epoch-2.keras",
        "step.keras",
    ]
    assert chief["hidden"] == []
    assert chief["rows"] == 3  # two epochs, and one appended
    assert chief["csv_loss"] == chief["history"]["loss"][1]
    assert chief["history"] == worker["history"]
    # The file holds the model of the epoch that it is named after.
    assert chief["saved"]["loss"] == pytest.approx(chief["history"]["val_loss"][1], rel=1e-5)
    assert chief["saved"] == worker["saved"]


def test_tensorboard(folder):
    chief, _ = together("tensorboard", folder)
    assert chief["files"] == ["train", "validation"]
    tags = chief["tags"]["train"]
    assert {"batch_loss", "batch_mae", "epoch_loss", "epoch_steps_per_second"} <= set(tags)
    assert sum(tag.endswith("/histogram") for tag in tags) == 4
    assert {"epoch_loss", "evaluation_loss_vs_iterations"} <= set(chief["tags"]["validation"])


def test_chief_only_uses_the_model_alone(folder):
    chief, worker = together("chief_only", folder)
    assert worker["calls"] == []
    assert chief["calls"] == [
        "train_begin",
        "epoch_end 0",
        "epoch_end 1",
        "train_begin",
        "epoch_end 0",
    ]
    seen = chief["seen"]
    # On all the data, not on the chief's part of it.
    assert seen["predicted"] == seen["mc_dropout"] == 64
    for way in ("loss", "on_batch", "called"):
        assert seen[way] == pytest.approx(seen["by_hand"], rel=1e-5)
    assert seen["zeros"] == 0.0
    assert chief["files"] == ["0.keras", "0.weights.h5"]
    refused = {"fit", "train_on_batch", "reduce", "gather", "run", "scope", "learning_rate"}
    assert chief["refusals"] == dict.fromkeys(refused, "TFRUN-505")
    # The training of all workers knows nothing of it.
    assert chief["history"] == worker["history"]
    assert chief["digest"] == worker["digest"]
    assert worker["seen"]["all_predicted"] == 64
    assert worker["seen"]["all_loss"] == seen["all_loss"]


def test_chief_only_uses_models_alone_in_a_script_without_a_strategy(tmp_path):
    chief, worker = on_two_workers("chief_adopted", tmp_path)
    seen = chief.pop("seen")
    assert worker.pop("seen") == {} and chief == worker
    assert chief["replicas"] == 2 and chief["on_batch"] == 8
    assert seen["trained"] == pytest.approx(seen["by_hand"], rel=1e-5)
    assert seen["own"][0] == seen["on_batch"] == seen["in_scope"] == 64
    assert seen["strategies"] == 1


def test_training_is_the_same_with_and_without_chief_only(folder):
    with_it, _ = together("transparent", folder)
    assert with_it["with"] == with_it["without"]


def test_workers_decide_together(folder):
    chief, worker = together("decide", folder)
    runs = chief["runs"]
    assert {name: run["epochs"] for name, run in runs.items()} == {
        "early": 3,
        "plateau": 6,
        "schedule": 6,
    }
    assert runs["plateau"]["rate"] == pytest.approx(1e-2 * 0.1**5, rel=1e-4)
    assert runs["schedule"]["rate"] == pytest.approx(1e-2 * 0.5**6)
    assert chief["nan_steps"] == 2
    # Each worker logged its rank: the mean is what all callbacks and the history see.
    assert chief["own"] == {"loss": [0.5] * 2, "mine": [5.0] * 2}
    assert chief == worker


def test_one_worker_stops_all_at_one_step(folder):
    chief, worker = together("stop", folder)
    assert {name: (run["epochs"], run["steps"]) for name, run in chief["runs"].items()} == {
        "epoch_worker_1": (3, 12),
        "epoch_chief": (2, 8),
        "batch_worker_1": (2, 4 + 2),  # within the epoch, at the step after which it asked
        "lambda": (1, 3),
        "chief_has_it": (2, 4 + 1),
        "signal": (2, 8),  # kept for the end of the epoch
    }
    assert chief == worker


def test_workers_decide_together_with_steps_per_execution(folder):
    chief, worker = together("steps_per_execution", folder)
    assert chief["history"] == worker["history"]
    assert len(chief["history"]["loss"]) == 2
    assert chief["steps"] == worker["steps"] == 4 + 4


def test_saving_leaves_one_good_file(folder):
    chief, worker = together("saving", folder)
    for result in (chief, worker):
        same = dict(result["same"])
        assert same.pop("trains_on") == 8
        assert all(same.values()), same
        assert result["part"] == [64, 3]
    assert chief["history"] == worker["history"]
    assert chief["all"] == [
        "function.keras",
        "legacy.h5",
        "model.keras",
        "model.weights.h5",
        "shards.weights.json",
        "shards_00000.weights.h5",
        "shards_00001.weights.h5",
        "shards_00002.weights.h5",
    ]
    assert chief["chief"] == ["model.keras", "model.weights.h5"]
    assert (chief["code"], worker["code"]) == (None, None)
    assert not [name for name in chief["listing"] if "/." in name or name.startswith(".")]
    assert "Saved artifact at 'FOLDER/all/exported'" in chief["said"]
    assert worker["said"] == ""


def test_backup_is_restored_on_all_workers(folder):
    chief, worker = together("restore", folder)
    assert chief["left"] == ["backup-0/latest.weights.h5", "backup-0/training_metadata.json"]
    for result in (chief, worker):
        assert result["restored"]
        assert result["epochs"] == [2, 3]
        assert result["iterations"] == 16
        assert result["end"] == result["straight"]
    assert chief["end"] == worker["end"]
    assert chief["after"] == []


def test_progress_once_and_reports(tmp_path):
    chief, worker = on_two_workers("output", tmp_path)
    assert worker["said"] == "a print of the script\n"
    assert chief["said"].startswith("a print of the script\n")
    assert "Epoch 2/2" in chief["said"]
    assert chief["history"] == worker["history"]
    assert worker["reports"] == []
    told = ("fit_begin", "epoch_end", "fit_end")  # to a person; the rest is recovery's
    kinds = [report["kind"] for report in chief["reports"] if report["kind"] in told]
    assert kinds == ["fit_begin", "epoch_end", "epoch_end", "fit_end"] + [
        "fit_begin",
        "epoch_end",
        "fit_end",
    ]
    first_end, second_end = (r for r in chief["reports"] if r["kind"] == "fit_end")
    assert (first_end["steps"], first_end["samples"]) == (8, 128)
    assert first_end["logs"]["val_loss"] == chief["history"]["val_loss"][-1]
    assert first_end["samples_per_second"] == pytest.approx(128 / first_end["seconds"])
    # Arrays, with a short last batch.
    assert (second_end["steps"], second_end["samples"]) == (3, 64)
    assert all(math.isfinite(report["seconds"]) for report in (first_end, second_end))


def test_sync_check_names_the_variable(tmp_path):
    for result in on_two_workers("sync_check", tmp_path):
        assert result["healthy"] == 1
        assert result["code"] == "TFRUN-504"
        assert "kernel" in result["message"]
        assert result["iterations"] == 6  # every second step: found at the second of the epoch


@pytest.mark.parametrize("n", [1, 2, 3])
def test_only_the_chief_makes_folders(tmp_path, n):
    env = {"TEST_FOLDER": str(tmp_path)}
    chief, *others = run_workers("callbacks_folders.py", n, env, timeout=120)
    made = ["backup/deep", "best/1", "best/2", "each/1", "each/2", "steps/1", "steps/2"]
    assert sorted(chief["made"]) == made
    assert "saving model to" in chief["said"] and "an own hook" in chief["said"]
    for worker in others:
        assert (worker["made"], worker["said"]) == ([], "")
        assert worker["remembered"] == chief["remembered"]
        # In its own loop it asks as Keras does, and finds that the folder has been made.
        assert worker["hand_made"] in ([], ["hand"])
    assert chief["remembered"][0]["best"] > 0
    assert not any(state["shadowed"] for state in chief["remembered"])
    files = chief["files"]
    assert [name for name in files if name.endswith((".txt", ".csv"))] == [
        "hook-0.txt",
        "log-0.csv",
        "saved-0-0.txt",
        "saved-0-1.txt",
    ]
    assert "backup/deep/latest.weights.h5.bkp" in files
    assert chief["hand"] == ["m.weights.h5"]


@functools.cache
def fits(*command: object) -> dict[str, Any]:
    shown = shown_by([*map(str, command), SCRIPTS / "fits_traced.py"], {}, timeout=110)
    (found,) = re.findall(r"MADE (\{.*\})", shown)
    return json.loads(found)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("options", [["-n", "2"], ["-n", "2", "--replicas", "3"]], ids=" ".join)
def test_a_callback_that_looks_at_batches_has_no_step_traced_anew(tmp_path, options):
    """And it sees what it sees of one process."""
    found = fits(TFRUN, *options, "--run-dir", tmp_path)
    alone = fits(sys.executable)
    # The last batches, of another size than the validation's, are traced anew there as well.
    assert sum(found["traces"][1:4]) == 0 and sum(found["traces"][5:8]) == 0, found["traces"]
    assert found["traces"][4:] == alone["traces"][4:]
    assert len(found["seen"]) == len(alone["seen"])
    for mine, theirs in zip(found["seen"], alone["seen"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-6)
