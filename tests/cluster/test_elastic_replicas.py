"""A job that shrinks and grows has one number of replicas, and the bits of one undisturbed.

With -n MIN:MAX it is MAX, unless --replicas states another one, or the script cannot have several
on a worker.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from test_elastic import Result, assert_close, elastic, train
from test_elastic import undisturbed as with_two
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


@pytest.mark.timeout(300)
def test_a_job_that_starts_with_fewer_workers_has_the_bits_of_all() -> None:
    wanted = train([TFRUN, "-n", "3", *OPTIONS], NOISY="1")
    found = elastic("1:3", 3, NOISY="1", MISSING="1")
    assert (found.workers, wanted.workers) == (2, 3)
    assert found.history == wanted.history
    for one, other in zip(found.weights, wanted.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not found.of("one_replica_each")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("workers", "env", "worlds"),
    [
        # With all of them, and no --replicas, a loop is as it is without tfrun: see replicas.md.
        pytest.param("1:3", {"MISSING": "1", "DEATHS": "0:1:20"}, [], id="it starts with fewer"),
        pytest.param(
            "2:3",
            {"FAULTS": "0:1:20", "WAITS": "1:40:regroup:1", "TFRUN_REPLICAS": "3"},
            [2, 3],
            id="it shrinks and grows",
        ),
    ],
)
def test_a_loop_of_the_scripts_own_has_the_bits_of_all_too(workers, env, worlds) -> None:
    own = {"NOISY": "1", "LOOP": "steps", "TFRUN_REPLICAS": "3"}
    wanted = train([TFRUN, "-n", "3", *OPTIONS], **own)
    del own["TFRUN_REPLICAS"]
    found = elastic(workers, 3, **own, **env)
    assert [event["workers"] for event in found.of("resized")] == worlds
    assert found.history == wanted.history
    for one, other in zip(found.weights, wanted.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.of("recovered") and not found.of("one_replica_each")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("missing", [1, 2])
def test_a_loop_that_computes_what_its_step_is_given_has_one_replica_each(missing: int) -> None:
    """It cannot have several: it begins anew, and nothing has failed."""
    found = elastic("1:3", 3, LOOP="outside", MISSING=str(missing))
    assert_close(found, with_two("steps"))
    (told,) = found.of("one_replica_each")
    assert told["round"] == 0 and not found.of("failure") and not found.of("recovered")
    (line,) = (line for line in found.lines if "each worker has one replica" in line)
    assert "other bits with another number of workers" in line and "3 replicas" in line
