"""With --replicas a job that shrinks and grows ends with the bits of one that nothing disturbed."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from test_elastic import Result, elastic, train
from workers import TFRUN

REPLICAS = {"TFRUN_REPLICAS": "4", "NOISY": "1"}
OPTIONS = ("--threads-per-worker", "1", "--run-dir", "run")


@functools.cache
def undisturbed() -> Result:
    return train([TFRUN, "-n", "2", *OPTIONS], **REPLICAS)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("workers", "machines", "worlds", "env"),
    [
        pytest.param(
            *("2:3", 3, [2, 3, 2, 3]),
            {"FAULTS": "0:1:20 2:0:70", "WAITS": "1:40:regroup:1 3:90:regroup:2"},
            id="it shrinks and grows",
        ),
        pytest.param(
            *("1:3", 3, [2, 1]),
            {
                "WANTED": "0:1:20:agent 1:0:100:worker",
                "WAITS": "0:25:regroup:1 1:105:regroup:2",
            },
            id="it shrinks for good",
        ),
        pytest.param(
            *("1:2", 2, [1, 2]),
            {"FAULTS": "0:1:20", "WAITS": "1:40:regroup:1"},
            id="it grows from one",
        ),
    ],
)
def test_a_job_that_shrinks_and_grows_has_the_same_bits(workers, machines, worlds, env) -> None:
    wanted, found = undisturbed(), elastic(workers, machines, **REPLICAS, **env)
    assert [event["workers"] for event in found.of("resized")] == worlds
    assert found.history == wanted.history and "val_mae" in found.history
    for one, other in zip(found.weights, wanted.weights, strict=True):
        np.testing.assert_array_equal(one, other)
