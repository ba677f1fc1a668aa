"""What a worker is told, and that a job which its script starts hears none of it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import click
import pytest

from tfrun.cli.job_variables import of_a_job
from tfrun.cli.main import VERBS, run
from tfrun.cluster.external_cluster import external_environment
from tfrun.cluster.pods import group_of, health_port
from tfrun.job.errors import UsageError
from tfrun.job.settings import (
    VARIABLE,
    WITHOUT_OPTION,
    TrainingSettings,
    WorkerSettings,
    from_variables,
    leave_outer_job,
)
from tfrun.job.spec import JobSpec, Program
from tfrun.job.trial_request import Trial

DOCS = Path(__file__).parents[2] / "docs"
STATED = JobSpec(
    program=Program(target="train.py"),
    run_dir="/run",
    compress="bf16",
    max_staleness=3,
    trial=Trial(steps=4, batch=8),
    stated=("compress", "keep"),
)
OWN = WorkerSettings.of(STATED, state_dir="/dev/shm/x", task="worker:1", collective_key="secret")


OPTIONS = {
    f"TFRUN_{str(param.name).upper()}"
    for param in run.params
    if isinstance(param, click.Option) and param.expose_value
}


def documented() -> set[str]:
    """The variables that the documentation names, and one for each option."""
    text = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    named = set(re.findall(r"\bTFRUN_[A-Z_]*[A-Z]\b", text))
    return named | WITHOUT_OPTION | OPTIONS


def test_a_worker_gets_what_is_stated() -> None:
    for field in dataclasses.fields(TrainingSettings):
        assert getattr(OWN, field.name) == getattr(STATED, field.name)
    told = OWN.variables()
    assert WorkerSettings.from_json(told.pop(VARIABLE)) == OWN
    assert told == {"TFRUN_RUN_DIR": "/run", "TFRUN_STATE_DIR": "/dev/shm/x"}


def test_nothing_of_a_job_is_left_for_one_that_its_script_starts() -> None:
    """Whatever people have set for the job, and whatever tfrun has set for its worker."""
    names = {*documented(), "TFRUN_TUNE_STEPS"}
    assert len(names) > 50
    environment = dict.fromkeys(names, "1")
    for name in of_a_job(environment, run, VERBS):
        del environment[name]
    others = {"TFRUN_VERSION": "of an image", "OMP_NUM_THREADS": "2"}
    environment |= {**others, "SLURM_JOB_ID": "3"}
    cluster = '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}'
    environment |= external_environment(cluster, 5) | OWN.variables()
    leave_outer_job(environment)
    assert group_of(environment) is None and not health_port(environment)
    assert environment == others


def test_what_the_script_sets_for_its_job_stays() -> None:
    mine = dict.fromkeys(OPTIONS, "of mine")
    environment = OWN.variables() | mine
    leave_outer_job(environment)
    assert environment == mine
    leave_outer_job(mine)  # no worker
    assert environment == mine


def test_variables_that_no_option_stands_for() -> None:
    said = {"TFRUN_OWN_ROWS": "0", "TFRUN_CHIEF_AWAY": "300", "TFRUN_TRIAL": '{"steps": 2}'}
    assert from_variables({**said, "TFRUN_DRILL": "", "TFRUN_KEEP": "3"}) == {
        "own_rows": False,
        "chief_away": 300.0,
        "trial": Trial(steps=2),
    }
    with pytest.raises(UsageError, match="TFRUN_CHIEF_AWAY") as caught:
        from_variables({"TFRUN_CHIEF_AWAY": "long"})
    assert caught.value.code == "TFRUN-105"
