"""What workers find in their environment."""

from __future__ import annotations

import os

import pytest

from tfrun.agent.worker_environment import threads_for, worker_environment
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
    assert threads_for(spec(threads_per_worker=stated), workers, cores) == threads
    values = environment(cores=cores, workers=workers, threads_per_worker=stated)
    assert [values[name] for name in THREADS] == [str(threads)] * 3


@pytest.mark.parametrize("name", THREADS)
def test_what_the_user_has_set_stays(name: str) -> None:
    assert environment({name: "17"})[name] == "17"


def test_the_rest_of_the_environment_is_passed_on_as_it_is() -> None:
    outer = {"PATH": "/bin", "HOME": "/root", "ODD": "caf\udce9", "EMPTY": ""}
    assert outer.items() <= environment(outer).items()


def test_each_worker_gets_a_tf_config_of_its_own() -> None:
    assert "TF_CONFIG" not in environment({"TF_CONFIG": "{}"})


def test_keras_runs_on_tensorflow_whatever_its_configuration_says() -> None:
    assert environment({"KERAS_BACKEND": "jax"})["KERAS_BACKEND"] == "tensorflow"


def test_settings_travel() -> None:
    assert environment(communication="ring")["TFRUN_COMMUNICATION"] == "ring"
    assert environment()["TFRUN_COMPRESS"] == "off"
    assert environment({"TFRUN_COMPRESS": "off"}, compress="fp16")["TFRUN_COMPRESS"] == "fp16"
    assert environment({"TFRUN_OVERLAP": "off"}, overlap="on")["TFRUN_OVERLAP"] == "on"
    assert "TFRUN_SMALL_BYTES" not in environment()
    assert environment(small_bytes=9, pack_bytes=8)["TFRUN_PACK_BYTES"] == "8"
    assert "TFRUN_SYNC_CHECK" not in environment()
    assert environment(sync_check=10)["TFRUN_SYNC_CHECK"] == "10"
    assert environment()["TFRUN_SNAPSHOT_EVERY"] == "auto"
    assert environment(snapshot_every="30s")["TFRUN_SNAPSHOT_EVERY"] == "30s"
    assert environment()["TFRUN_RECOVERS"] == "1"
    without = environment(snapshot_every="30s", max_restarts=0)  # nobody would read one
    assert (without["TFRUN_SNAPSHOT_EVERY"], without["TFRUN_RECOVERS"]) == ("0", "0")
    assert environment(deterministic=True)["TFRUN_DETERMINISTIC"] == "1"
    assert "TFRUN_DETERMINISTIC" not in environment({"TFRUN_DETERMINISTIC": "0"})


def test_all_values_are_text() -> None:
    for name, value in environment(sync_check=1, threads_per_worker=2).items():
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
