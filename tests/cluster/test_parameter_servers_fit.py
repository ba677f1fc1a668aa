"""`fit` on parameter servers: learns, counts exactly, touches rows only, survives its workers."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from workers import SCRIPTS, TFRUN, environment


@functools.cache
def found(script: str, *options: str, **env: str) -> dict[str, Any] | str:
    """What a script has found with two workers and two servers; its output, if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        command = [TFRUN, "-n", "2", "--ps", "2", *options, "--run-dir", f"{folder}/run"]
        try:
            done = subprocess.run(
                [*command, SCRIPTS / script],
                env=environment({**env, "TEST_OUT": str(out)}),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=240,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            return str(error.stderr)[-5000:]
        if done.returncode or not out.exists():
            return f"{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
        return json.loads(out.read_text())


def case(name: str) -> Any:
    results = found("ps_fit.py")
    assert isinstance(results, dict), results
    result = results[name]
    assert not isinstance(result, dict) or "error" not in result, result["error"]
    return result


def test_learns_with_callbacks_and_validation() -> None:
    result = case("learns")
    assert result["keys"] == ["accuracy", "loss", "val_accuracy", "val_loss"]
    assert result["epochs"] == 8
    assert result["iterations"] == 8 * 47
    assert result["accuracy"] == pytest.approx(result["last"], abs=1e-6)
    assert result["accuracy"] == pytest.approx(result["predicted"], abs=1e-6)
    assert result["accuracy"] > 0.95
    assert result["saved"] > 0.95
    assert result["board"]
    assert result["moved"] > 0, "BatchNorm's statistics have moved"


def test_no_update_and_no_sample_is_lost() -> None:
    assert case("counts_are_exact") == {
        "iterations": 3 * 94,
        "samples": [1500.0] * 3,
        "batches": 3 * 94,
    }


def test_pipelines_are_shared_out_by_position() -> None:
    result = case("tf_data")
    assert (result["iterations"], result["samples"]) == (2 * 47, [1500.0, 1500.0])
    assert result["predicted"] == list(range(30)) and result["first"] == list(range(9))
    assert case("dataset_function")["iterations"] == 40


def test_records_are_read_where_they_are_trained_on() -> None:
    result = case("mapped_files")
    assert result["samples"] == [100.0, 100.0]
    assert result["loss"] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert result["sum"] == pytest.approx(sum(range(100)))


def test_stops_within_an_epoch_and_counts_what_has_begun() -> None:
    result = case("stops")
    assert result["epochs"] == 1
    assert 5 <= result["iterations"] <= 5 + 2 * 2 + 1


def test_without_staleness_it_is_synchronous_training() -> None:
    result = case("synchronous")
    assert result["weights"] < 1e-5
    assert result["logs"] < 1e-5


def test_staleness_is_counted_and_bounded() -> None:
    for bound, result in case("staleness_is_bounded").items():
        assert result["steps"] == 94
        assert bound == "None" or result["worst"] <= int(bound)


def test_only_rows_that_occur_are_touched() -> None:
    result = case("rows_only")
    assert max(result[name] for name in ("SGD", "Adagrad")) < 1e-5
    assert result["untouched"] and result["touched"]
    assert result["shards"] == 2
    assert result["beside"], "slots are where their rows are"


def test_what_workers_cannot_make_is_refused() -> None:
    assert case("wrong_data") == [
        *["TFRUN-613"] * 5,
        *["TFRUN-614"] * 2,
        *["TFRUN-505"] * 4,
    ]


def test_data_without_a_batch_is_told() -> None:
    *codes, logged = case("nothing")
    assert codes == ["TFRUN-601"] * 3
    assert not [name for name in logged if name.startswith("val_")]


def test_less_than_a_batch_is_predicted() -> None:
    result = case("one_batch")
    assert result["one"] == [True] * 3
    assert result["list"] == [[True, True]] * 3
    assert result["dict"] == [{"a": True, "b": True}] * 3 + [[1, 1]]


def test_optimizers_that_look_at_more_than_rows() -> None:
    result = case("averages_and_norms")
    assert result.pop("lamb in shards") == "TFRUN-505"
    assert result.pop("adafactor") == "TFRUN-505"  # with slots on the other server
    assert set(result) == {"ema", "ema and global_clipnorm", "lamb"}
    assert max(result.values()) < 1e-6, result


def test_a_model_with_two_optimizers() -> None:
    result = case("two_optimizers")
    assert result["off"] < 1e-6
    assert result["iterations"] == [8, 8]


def test_a_coordinators_own_loop_loses_nothing() -> None:
    result = case("own_loop")
    assert result["iterations"] == 60
    assert result["samples"] == 480.0


def check_counts(result: dict[str, Any], kills: int) -> None:
    """Nothing was lost and nothing came twice, on either server."""
    assert result["killed"] == kills
    assert result["iterations"] == result["counted"] == result["trained"]
    assert result["batches"] == result["epochs"] * 60
    assert result["samples"] == [960.0]
    assert len(result["servers"]) == 2
    assert result["visits"] == [[float(result["epochs"])]] * 2


def check_kills(kills: int, **env: str) -> None:
    result = found("ps_kills.py", TEST_KILLS=str(kills), TEST_DATA="arrays pipeline", **env)
    assert isinstance(result, dict), result
    for data in ("arrays", "pipeline"):
        check_counts(result[data], kills)


def test_killed_workers_cost_no_update() -> None:
    check_kills(2)


def test_after_the_death_of_a_server_and_of_the_chief_it_goes_on() -> None:
    """From the last checkpoint, in the midst of arrays and of a pipeline that is read on and on."""
    env = {"TEST_SERVER_IN": "arrays", "TEST_CHIEF_IN": "parts", "TEST_SEED": "1"}
    data = "arrays parts"
    options = ("--ledger", "--checkpoint-every", "15")
    result = found("ps_kills.py", *options, TEST_DATA=data, **env)
    assert isinstance(result, dict), result
    assert result["round"] == 2
    assert 180 < result["resumed_from"] < 300
    assert [result[kind]["iterations"] for kind in data.split()] == [180, 300]
    assert result["parts"]["sums"] == [120.0 * 16] * 2
    assert result["arrays"]["visits"] == [[3.0]] * 2
    assert result["ledger"] == [["data0", epoch, 960, True] for epoch in range(3)]
    assert ["tf.data pipeline" in note for note in result["not_covered"]] == [True]


@pytest.mark.thorough
def test_twenty_killed_workers_cost_no_update() -> None:
    seed = os.environ.get("TEST_SEED") or str(random.randrange(10**6))
    print("seed", seed)
    check_kills(20, TEST_SEED=seed)


@pytest.mark.thorough
def test_a_recommender_ranks_as_well_as_one_that_was_trained_synchronously(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "recommender.py"
    on_servers = [TFRUN, "-n", "2", "--ps", "2", "--run-dir", tmp_path / "run"]
    reached = []
    for command in ([sys.executable], on_servers):
        done = subprocess.run(
            [*command, example],
            env=environment({}),
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        (found,) = re.findall(r"^AUC ([\d.]+) of", done.stdout, re.MULTILINE)
        reached.append(float(found))
    synchronous, asynchronous = reached
    assert synchronous > 0.86
    assert asynchronous > synchronous - 0.005
