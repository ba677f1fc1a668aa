"""What workers find in their environment."""

from __future__ import annotations

import os

import pytest

from tfrun.agent.worker_environment import worker_environment
from tfrun.job.spec import JobSpec, Program
from tfrun.process.python import usable_cores


def spec(**changes) -> JobSpec:
    return JobSpec(program=Program(target="train.py"), run_dir="/run", **changes)


def environment(outer: dict[str, str] | None = None, cores: int = 8, workers: int = 2, **changes):
    return worker_environment(outer or {}, spec(**changes), workers_here=workers, cores=cores)


THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


@pytest.mark.parametrize(
    ("stated", "workers", "cores", "threads"),
    [(None, 2, 8, 4), (None, 3, 8, 2), (None, 8, 2, 1), (None, 0, 4, 4), (3, 2, 8, 3)],
)
def test_threads(stated: int | None, workers: int, cores: int, threads: int) -> None:
    values = environment(cores=cores, workers=workers, threads_per_worker=stated)
    assert [values[name] for name in THREADS] == [str(threads)] * 3


def test_sets_have_one_order_in_all_processes_of_a_job() -> None:
    assert environment(seed=7)["PYTHONHASHSEED"] == "7"


@pytest.mark.parametrize("name", [*THREADS, "PYTHONHASHSEED"])
def test_what_the_user_has_set_stays(name: str) -> None:
    assert environment({name: "17"})[name] == "17"


def test_the_rest_of_the_environment_is_passed_on_as_it_is() -> None:
    outer = {"PATH": "/bin", "HOME": "/root", "ODD": "caf\udce9", "EMPTY": ""}
    assert outer.items() <= environment(outer).items()


def test_each_worker_gets_a_tf_config_of_its_own() -> None:
    assert "TF_CONFIG" not in environment({"TF_CONFIG": "{}"})


def test_keras_runs_on_tensorflow_whatever_its_configuration_says() -> None:
    assert environment({"KERAS_BACKEND": "jax"})["KERAS_BACKEND"] == "tensorflow"


def test_all_values_are_text() -> None:
    for name, value in environment(threads_per_worker=2).items():
        assert isinstance(name, str) and isinstance(value, str)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_only_cores_that_we_may_use_count() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert usable_cores() == len(allowed)
