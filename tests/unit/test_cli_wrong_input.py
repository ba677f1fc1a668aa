"""Wrong input: one coded line, exit code 2, nothing started, nothing written."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import psutil
import pytest

import tfrun
from conftest import TFRUN, Jobs

# Reports each process that a Python would start; site imports it in every interpreter.
SPY = """
import sys
def spy(event, arguments):
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"):
        print("STARTED A PROCESS:", event, arguments, file=sys.stderr)
sys.addaudithook(spy)
"""
SOURCE = str(Path(tfrun.__file__).parents[1])
TWO = {"worker": ["127.0.0.1:40001", "127.0.0.1:40002"]}


def tf_config(cluster: object = TWO, **task: object) -> dict[str, str]:
    task = task or {"type": "worker", "index": 0}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


@pytest.fixture
def here(jobs: Jobs) -> Jobs:
    jobs.script(SPY, "spy/sitecustomize.py")
    jobs.environment["PYTHONPATH"] = str(jobs.directory / "spy")
    jobs.script("print('ran')")
    jobs.script("", "package/__init__.py")
    jobs.script("", "file")
    return jobs


def check_refused(result: subprocess.CompletedProcess[str], code: str, told: str) -> None:
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"tfrun: {code}: ")
    assert told in line
    assert len(line) < 1000


def refused(here: Jobs, code: str, told: str, *args: str, env: dict[str, str] | None = None):
    before = sorted(here.directory.rglob("*"))
    check_refused(here.run(*args, env=env, timeout=30), code, told)
    assert sorted(here.directory.rglob("*")) == before


def test_the_spy_sees_processes(here: Jobs) -> None:
    """Else the other tests could not fail."""
    command = [sys.executable, "-c", "import subprocess; subprocess.run(['true'])"]
    result = subprocess.run(command, env=here.environment, capture_output=True, text=True)
    assert "STARTED A PROCESS: subprocess.Popen" in result.stderr


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ([], "TFRUN-105", "SCRIPT"),
        (["missing.py"], "TFRUN-101", "'missing.py' does not exist"),
        (["package"], "TFRUN-101", "is a directory"),
        (["--epochs", "3"], "TFRUN-105", "--epochs"),
        (["-x", "train.py"], "TFRUN-105", "-x"),
        (["-m"], "TFRUN-105", "SCRIPT"),
        (["ls", "nonexistent"], "TFRUN-109", "'nonexistent' is not a directory"),
        (["ls", "train.py"], "TFRUN-109", "is not a directory"),
        (["-m", "nowhere"], "TFRUN-102", "'nowhere' does not exist"),
        (["-m", "train.py/"], "TFRUN-102", "does not exist"),
        (["-n", "0", "train.py"], "TFRUN-103", "0 is not a number of workers (in -n)"),
        (["-n", "4:2", "train.py"], "TFRUN-103", "4:2"),
        (["-n", "x", "train.py"], "TFRUN-103", "'x'"),
        (["-n", "", "train.py"], "TFRUN-103", "''"),
        (["-n"], "TFRUN-105", "-n"),
        (["-n", "train.py"], "TFRUN-105", "SCRIPT"),
        (["--ps", "-1", "train.py"], "TFRUN-105", "--ps"),
        (["--ps", "two", "train.py"], "TFRUN-105", "'two' is not a valid whole number"),
        (["--ps", "999999", "train.py"], "TFRUN-105", "--ps"),
        (["--ps", "1024", "train.py"], "TFRUN-103", "1,026 workers and servers are too many"),
        (["-n", "65535", "train.py"], "TFRUN-103", "at most 1,024"),
        (["-H", "a,b:2000", "-n", "2001", "train.py"], "TFRUN-103", "too many for b"),
        (["--join-timeout", "nan", "train.py"], "TFRUN-105", "'--join-timeout': nan is not"),
        (["--hang-timeout", "1e300", "train.py"], "TFRUN-105", "1e+300 is not"),
        (["--checkpoint-every", "0", "train.py"], "TFRUN-105", 'or "off" for never'),
        (["--checkpoint-dir", "train.py/saved", "train.py"], "TFRUN-701", "Not a directory"),
        (
            ["--checkpoint-dir", "ftp://a/b", "train.py"],
            "TFRUN-105",
            "not a URL that tfrun",
        ),
        (["--run-dir", "s3://a/b", "train.py"], "TFRUN-105", "not a path in a file system"),
        (["--tensorboard", "s3://a/b", "train.py"], "TFRUN-105", "not a path in a file system"),
        (["--run-dir", "s3:/a/b", "train.py"], "TFRUN-105", "not a path in a file system"),
        (["--checkpoint-dir", "gs:/a/b", "train.py"], "TFRUN-105", "lacks a slash"),
        (["--checkpoint-dir", "x" * 300, "train.py"], "TFRUN-701", "File name too long"),
        (["--checkpoint-every", "9" * 5000, "train.py"], "TFRUN-105", "--checkpoint-every"),
        (["--communication", "mpi", "train.py"], "TFRUN-105", "'auto', 'host', 'ring', 'nccl'"),
        (["--compress", "int8", "train.py"], "TFRUN-105", "'off', 'bf16', 'fp16'"),
        (["--compress", "bf16", "--communication", "ring", "train.py"], "TFRUN-107", "ring does"),
        (["--compress", "fp16", "--ps", "1", "train.py"], "TFRUN-107", "not to parameter servers"),
        (["--replicas", "0", "train.py"], "TFRUN-105", "--replicas"),
        (["--replicas", "2", "-n", "3", "train.py"], "TFRUN-107", "leaves some of 3 workers"),
        (["--threads-per-worker", "0", "train.py"], "TFRUN-105", "--threads-per-worker"),
        (["--threads-per-worker", "1000000000", "train.py"], "TFRUN-105", "1<=x<=1024"),
        (["--start-method", "spawn", "train.py"], "TFRUN-105", "--start-method"),
        (["--seed", "-1", "train.py"], "TFRUN-105", "--seed"),
        (["--sync-check", "often", "train.py"], "TFRUN-105", "--sync-check"),
        (["--max-restarts", "-1", "train.py"], "TFRUN-105", "--max-restarts"),
        (["--snapshot-every", "often", "train.py"], "TFRUN-105", "--snapshot-every"),
        (["--steps-per-execution", "0", "train.py"], "TFRUN-105", "--steps-per-execution"),
        (["--snapshot-every", "0s", "train.py"], "TFRUN-105", "'0s' does not say how often"),
        (["--run-dir", "file", "train.py"], "TFRUN-104", "File exists"),
        (["--run-dir", "file/run", "train.py"], "TFRUN-104", "Not a directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options(here: Jobs, args: list[str], code: str, told: str) -> None:
    refused(here, code, told, *args)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("TFRUN_WORKERS", "0", "TFRUN-103"),
        ("TFRUN_WORKERS", "4:2", "TFRUN-103"),
        ("TFRUN_PS", "one", "TFRUN-105"),
        ("TFRUN_COMMUNICATION", "mpi", "TFRUN-105"),
        ("TFRUN_LOG_ALL", "perhaps", "TFRUN-105"),
        ("TFRUN_THREADS_PER_WORKER", "0", "TFRUN-105"),
        ("TFRUN_RUN_DIR", "file", "TFRUN-104"),
        ("TFRUN_MODULE", "1", "TFRUN-102"),
    ],
)
def test_variables(here: Jobs, name: str, value: str, code: str) -> None:
    refused(here, code, "", "train.py", env={name: value})


@pytest.mark.parametrize("name", ["TFRUN_VERSION", "TFRUN_HELP"])
@pytest.mark.parametrize("value", ["0.1.0", "1", ""])
def test_variables_that_are_no_options_mean_nothing(here: Jobs, name: str, value: str) -> None:
    """TFRUN_VERSION is what image builders call the version that they install."""
    refused(here, "TFRUN-101", "missing.py", "missing.py", env={name: value})


def test_a_misspelt_variable_is_named(here: Jobs) -> None:
    mine = {"TFRUN_CHEKPOINT_EVERY": "5m", "TFRUN_N": "4", "TFRUN_TUNE_STEP": "3"}
    fine = {"TFRUN_KEEP": "3", "TFRUN_TUNE_STEPS": "3", "TFRUN_SERVICE_HOST": "10.0.0.1"}
    done = here.run("missing.py", env={**mine, **fine}, timeout=30)
    *named, refused = done.stderr.splitlines()
    assert "TFRUN-101" in refused and len(named) == 3
    assert "TFRUN_CHEKPOINT_EVERY has no effect" in named[0]
    assert "did you mean TFRUN_CHECKPOINT_EVERY?" in named[0]
    assert "TFRUN_N has no effect" in named[1] and "mean" not in named[1]
    assert "did you mean TFRUN_TUNE_STEPS?" in named[2]
    assert not here.run("ls", env=mine, timeout=30).stderr  # which starts no job


def test_a_directory_that_has_been_removed(here: Jobs) -> None:
    script = str(here.directory / "train.py")
    for argument in (script, f"tune {script}", f"submit slurm {script}", f"drill {script}"):
        words = f"mkdir gone; cd gone; rmdir ../gone; exec {TFRUN} {argument}"
        done = subprocess.run(
            ["bash", "-c", words],
            cwd=here.directory,
            env=here.environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
        check_refused(done, "TFRUN-101", "the current directory no longer exists")


@pytest.mark.parametrize(
    ("environment", "args", "code"),
    [
        ({"TF_CONFIG": "{"}, [], "TFRUN-201"),
        ({"TF_CONFIG": "[]"}, [], "TFRUN-201"),
        (tf_config([]), [], "TFRUN-202"),
        (tf_config({"boss": ["a:1"]}), [], "TFRUN-202"),
        (tf_config(type="worker", index="x"), [], "TFRUN-203"),
        (tf_config({"worker": ["a", "b:2"]}), [], "TFRUN-204"),
        (tf_config({"worker": ["a:1", "a:1"]}), [], "TFRUN-205"),
        (tf_config(type="worker", index=2), [], "TFRUN-206"),
        (tf_config(), ["-n", "3"], "TFRUN-207"),
        (tf_config(), ["--ps", "1"], "TFRUN-207"),
        (tf_config(), ["--max-restarts", "3"], "TFRUN-107"),
        (tf_config(), ["--launcher-timeout", "60"], "TFRUN-107"),
        (tf_config(), ["--overlap", "on", "--communication", "ring"], "TFRUN-107"),
        (tf_config({"worker": ["127.0.0.1:40001"]}), ["--sync-check", "3"], "TFRUN-107"),
    ],
)
def test_tf_config(here: Jobs, environment: dict[str, str], args: list[str], code: str) -> None:
    refused(here, code, "", *args, "train.py", env=environment)


def test_options_and_variables_contradict_tf_config_alike(here: Jobs) -> None:
    refused(here, "TFRUN-207", "", "train.py", env={**tf_config(), "TFRUN_WORKERS": "3"})


@contextlib.contextmanager
def listening() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_in_use(here: Jobs) -> None:
    with listening() as port:
        cluster = {"worker": [f"127.0.0.1:{port}", "127.0.0.1:1"]}
        refused(here, "TFRUN-208", str(port), "train.py", env=tf_config(cluster))


# --- machines with another TensorFlow, or none ----------------------------------------------


@pytest.fixture
def bare(here: Jobs) -> Path:
    """A directory of packages with what the command needs until it has checked its input."""
    site = here.directory / "site"
    site.mkdir()
    for package in (click, psutil):
        assert package.__file__
        (site / package.__name__).symlink_to(Path(package.__file__).parent)
    (site / "sitecustomize.py").write_text(SPY)
    return site


def run_bare(here: Jobs, site: Path) -> subprocess.CompletedProcess[str]:
    environment = {**here.environment, "PYTHONPATH": os.pathsep.join([str(site), SOURCE])}
    return subprocess.run(
        # -S: without the packages of this Python; the spy is imported by hand instead.
        [
            sys.executable,
            "-S",
            "-c",
            "import sitecustomize; from tfrun.cli.main import main; main()",
        ]
        + ["-n", "2", "train.py"],
        cwd=here.directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_tensorflow_is_missing(here: Jobs, bare: Path) -> None:
    check_refused(run_bare(here, bare), "TFRUN-106", 'pip install "tfrun[cpu]"')
    assert not (here.directory / "tfrun-runs").exists()


def test_tensorflow_is_too_old(here: Jobs, bare: Path) -> None:
    (bare / "tensorflow").mkdir()
    (bare / "tensorflow" / "__init__.py").write_text("raise SystemExit('imported')")
    info = bare / "tensorflow_cpu-2.15.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.15.1\n")
    check_refused(run_bare(here, bare), "TFRUN-106", "tensorflow-cpu 2.15.1 is too old")
    assert not (here.directory / "tfrun-runs").exists()
