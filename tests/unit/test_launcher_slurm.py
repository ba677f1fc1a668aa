"""Slurm's batch script, and which jobs are requeued."""

from __future__ import annotations

import stat

import pytest
from click.testing import CliRunner

from tfrun.cli.submit import submit
from tfrun.cluster.slurm import SlurmStep
from tfrun.job.errors import UsageError
from tfrun.job.spec import WorkerRange
from tfrun.launcher.prestarted.discovery import Found, of_step
from tfrun.launcher.slurm.batch_script import Submission, batch_script
from tfrun.launcher.slurm.requeue import why_not

WHAT = {
    **{"name": "train", "nodes": 4, "workers": None, "directory": "/home/me/a b"},
    **{"output": "/run/slurm.log", "grace": 60},
}


def options(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line]


def test_the_batch_script_saves_before_its_end_and_goes_on():
    script = batch_script(Submission(**WHAT), ["tfrun", "train.py", "a b"])
    said = options(script)
    assert script.startswith("#!/bin/bash\n#SBATCH ")
    assert {"--nodes=4", "--requeue", "--signal=B:TERM@60", "--open-mode=append"} <= set(said)
    assert "--chdir='/home/me/a b'" in said
    assert not [option for option in said if option.startswith("--ntasks")]
    assert script.splitlines()[-1] == "exec tfrun train.py 'a b'"


def test_the_jobs_output_goes_where_it_is_said_to():
    """Slurm replaces %j and the like in a file's name."""
    script = batch_script(Submission(**{**WHAT, "output": "/runs/50%j/slurm.log"}), ["tfrun"])
    assert "--output=/runs/50%%j/slurm.log" in options(script)


def test_workers_are_tasks_and_an_elastic_job_goes_on_without_a_node():
    fixed = batch_script(Submission(**{**WHAT, "workers": WorkerRange.parse("6")}), ["tfrun"])
    assert "--ntasks-per-node=2" in options(fixed) and "--no-kill" not in options(fixed)
    elastic = batch_script(Submission(**{**WHAT, "workers": WorkerRange.parse("2:8")}), ["tfrun"])
    assert "--ntasks-per-node=2" in options(elastic) and "--no-kill" in options(elastic)


@pytest.mark.parametrize("asked", ["--a=b\necho c", "qos=high", ""])
def test_what_is_no_option_is_refused(asked):
    with pytest.raises(UsageError, match="TFRUN-105"):
        batch_script(Submission(**WHAT, asked=[asked]), ["tfrun"])


def test_a_dry_run_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    line = ["slurm", "-N", "2", "-p", "gpu", "--sbatch=--qos=high", "--setup", "module load cuda"]
    done = CliRunner().invoke(submit, [*line, "--dry-run", "train.py", "--epochs", "3"])
    assert done.exit_code == 0, done.output
    assert {"--nodes=2", "--partition=gpu", "--qos=high"} <= set(options(done.output))
    assert "\nmodule load cuda\nexec " in done.output
    assert done.output.endswith(" train.py --epochs 3\n")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("args", "variables", "told"),
    [
        (["-t", "two hours"], {}, "--time"),
        (["--mem", "lots"], {}, "--mem"),
        (["-c", "0"], {}, "--cpus-per-task"),
        (["--gpus-per-node", "a100"], {}, "--gpus-per-node"),
        (["-p", "a b"], {}, "--partition"),
        (["-A", ""], {}, "--account"),
        ([], {"TFRUN_CHECKPOINT_EVERY": "sometimes"}, "--checkpoint-every"),
        ([], {"TFRUN_HANG_TIMEOUT": "inf"}, "inf"),
        (["-n", "2"], {"TFRUN_COMMUNICATION": "mpi"}, "--communication"),
        (["-J", "a\nb"], {}, "is not an option of sbatch"),
    ],
)
def test_what_would_fail_in_the_queue_is_refused_here(args, variables, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(submit, ["slurm", *args, "train.py"])
    assert isinstance(done.exception, UsageError), done.output
    assert done.exception.code == "TFRUN-105" and told in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_what_slurm_reads_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    for time in ("30", "30:00", "2:00:00", "1-12", "1-12:30", "1-0:0:0", "unlimited"):
        for gpus in ("4", "a100:4", "a100:4,v100:2"):
            line = ["slurm", "-t", time, "--gpus-per-node", gpus, "--mem", "64g", "-c", "8"]
            done = CliRunner().invoke(submit, [*line, "-p", "a,b", "--dry-run", "train.py"])
            assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("JobId=2 JobState=RUNNING Reason=None Requeue=1 Restarts=0 BatchFlag=1", ""),
        ("JobId=2 JobState=CANCELLED Requeue=1 BatchFlag=1", "its state is CANCELLED"),
        ("JobId=2 JobState=TIMEOUT Requeue=1 BatchFlag=1", "its state is TIMEOUT"),
        ("JobId=2 JobState=RUNNING Requeue=0 BatchFlag=1", "it was submitted with --no-requeue"),
        ("JobId=2 JobState=RUNNING Requeue=1 BatchFlag=0", "only jobs of sbatch can be"),
        ("", "its state is unknown"),
    ],
)
def test_only_a_running_batch_job_is_requeued(job, reason):
    assert (reason in why_not(job)) if reason else not why_not(job)


def step(rank: int) -> SlurmStep:
    return SlurmStep(
        **{"job": "2", "step": "0", "nodes": (("n1", 1), ("n2", 1))},
        **{"rank": rank, "here": f"n{rank + 1}", "local": 0},
    )


def test_the_tasks_of_a_step_meet_by_a_file_of_their_own(tmp_path):
    launcher, member = of_step(step(0), tmp_path), of_step(step(1), tmp_path)
    assert member.find() is None
    launcher.announce(1234, "secret")
    assert member.find() == Found(url="http://n1:1234", token="secret")
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    launcher.announce(1235, "another", "PEM")  # a file that a killed one has left
    found = member.find()
    assert found == Found(url="https://n1:1235", token="another", certificate="PEM")
    assert found.tls == {"only": "PEM"}
    launcher.close()
    assert not list(tmp_path.iterdir())


def test_a_link_is_not_followed(tmp_path):
    member = of_step(step(1), tmp_path)
    of_step(step(0), tmp_path).announce(1234, "secret")
    (path,) = tmp_path.iterdir()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert member.find() is None
