"""The same training on 1, 2, 3, 4 and 8 workers, with short, uneven and empty shares."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tfrun.data.ledger.proof import examine

SCRIPT = Path(__file__).with_name("scripts") / "data_invariance.py"


def trained(jobs, workers: int, *args: object, **env: str) -> dict:
    out = jobs.directory / f"{workers}.json"
    run = ("-n", workers, "--run-dir", f"run{workers}", SCRIPT, out, *args)
    done = jobs.run(*run, env={"TFRUN_LEDGER": "1", **env}, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    assert ("1 restart" in done.stderr) == ("KILL" in env), done.stderr
    result = json.loads(out.read_text())
    assert result["same_ids"]
    result["ledger"] = examine(jobs.directory / f"run{workers}").epochs
    assert all(report.exact and report.complete for report in result["ledger"])
    assert {report.worlds for report in result["ledger"]} == {(workers,)}
    return result


def assert_same(one: dict, many: dict) -> None:
    assert one["steps"] == many["steps"]
    assert one["position"] == many["position"]
    assert one["history"].keys() == many["history"].keys()
    for name, values in one["history"].items():
        np.testing.assert_allclose(values, many["history"][name], rtol=1e-5, err_msg=name)
    for name in ("scores", "weights", "predictions"):
        np.testing.assert_allclose(one[name], many[name], atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_losses_weights_and_predictions_do_not_depend_on_the_number_of_workers(jobs):
    """98 samples in batches of 32: 3 workers have uneven shares, 4 have an empty one at the end.
    Of the 3 one dies on the way; the samples' noise is the same."""
    one = trained(jobs, 1, 98, 32)
    assert one["steps"] == 12
    assert [(r.epoch, r.consumed) for r in one["ledger"]] == [(0, 98), (1, 98), (2, 98)]
    assert_same(one, trained(jobs, 3, 98, 32, KILL="1"))
    assert_same(one, trained(jobs, 4, 98, 32))


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_eight_workers_of_which_six_have_nothing_in_the_last_batch(jobs):
    assert_same(trained(jobs, 1, 98, 32), trained(jobs, 8, 98, 32))


@pytest.mark.slow
def test_a_resume_in_the_middle_of_an_epoch_continues_there(jobs):
    one = trained(jobs, 1, 98, 32, 1, 2)
    assert one["steps"] == 6  # two of epoch 1, four of epoch 2
    assert_same(one, trained(jobs, 2, 98, 32, 1, 2))


@pytest.mark.slow
def test_equal_shares_have_static_shapes_and_the_same_results(jobs):
    assert_same(trained(jobs, 1, 96, 32), trained(jobs, 2, 96, 32))
