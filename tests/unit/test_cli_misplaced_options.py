"""An option of tfrun's behind the script goes to the script, and somebody new is told so."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from conftest import Jobs
from tfrun.cli.main import command_for
from tfrun.cli.misplaced_options import found


def told(line: str) -> str:
    command, args, name = command_for(line.split()[1:])
    return found(command.make_context(name, args))


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("tfrun train.py -n 2", "tfrun -n 2 train.py"),
        ("tfrun train.py --epochs 3 --workers 2:4", "tfrun --workers 2:4 train.py"),
        ("tfrun train.py --workers=2 -v", "tfrun --workers=2 train.py"),
        ("tfrun -m pkg.train -H a,b:2", "tfrun -H a,b:2 -m pkg.train"),
        ("tfrun --fresh train.py --ps 1 -n 2", "tfrun --ps 1 train.py"),
        ("tfrun train.py --hostfile hosts", "tfrun --hostfile hosts train.py"),
        ("tfrun submit slurm train.py -N 2", "tfrun submit slurm -N 2 train.py"),
        (
            "tfrun render kubernetes --image i train.py -n 2",
            "tfrun render kubernetes -n 2 train.py",
        ),
    ],
)
def test_what_may_be_meant_for_tfrun(line: str, meant: str) -> None:
    text = told(line)
    assert "stands behind the script" in text and text.endswith(f"write it first: {meant}")


@pytest.mark.parametrize(
    "line",
    [
        "tfrun train.py",
        "tfrun -n 2 train.py -n 2",  # has been told
        "tfrun --workers 1 train.py -n 100",
        "tfrun -- train.py -n 2",  # somebody knows
        "tfrun train.py -- -n 2",
        "tfrun train.py -n 1",  # as it is
        "tfrun train.py -n name",
        "tfrun train.py -n",
        "tfrun train.py -n2",
        "tfrun train.py -n=2",
        "tfrun train.py --hosts -v",
        "tfrun train.py --keep 2 --seed 1",
    ],
)
def test_what_is_the_scripts(line: str) -> None:
    assert told(line) == ""


def test_a_variable_has_told_tfrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFRUN_WORKERS", "1")
    assert told("tfrun train.py -n 2") == ""


def test_it_is_told_once_where_one_worker_runs(jobs: Jobs) -> None:
    jobs.script("import sys; print(sys.argv[1:])")
    done = jobs.run("train.py", "-n", 2)
    assert done.returncode == 0, done.stderr
    assert "['-n', '2']" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "behind the script" in line]
    assert lines == [
        "tfrun: `-n 2` stands behind the script, so train.py gets it, and the job has 1 worker. "
        "If it is meant for tfrun, write it first: tfrun -n 2 train.py"
    ]


def test_what_a_scheduler_is_given(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass")
    for line, is_told in (
        ("submit slurm --dry-run train.py -n 2", True),
        ("submit slurm --dry-run -N 2 train.py -n 2", False),
        ("render kubernetes --image i train.py -n 2", True),
        ("render kubernetes --image i -n 2 train.py --ps 1", False),
    ):
        command, args, name = command_for(line.split())
        done = CliRunner().invoke(command, args, prog_name=name)
        assert done.exit_code == 0
        assert ("stands behind the script" in done.stderr) is is_told, line
