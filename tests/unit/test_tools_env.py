"""What `tfrun env` tells, and what it keeps to itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tfrun
from conftest import Jobs
from tfrun.job.supported_versions import installed as versions
from tfrun.tools.env import installed, machine, report

SECRETS = {
    "TFRUN_TOKEN": "s3cret",
    "TFRUN_TLS_KEY": "s3cret",
    "TF_API_KEY": "s3cret",
    "KERAS_PASSWORD": "s3cret",
    "NCCL_AUTH": "s3cret",
    "AWS_ACCESS_KEY_ID": "s3cret",
    "GOOGLE_APPLICATION_CREDENTIALS": "s3cret",
    "https_proxy": "http://me:s3cret@proxy:8080",
    "TF_SERVICE": '{"address": "a:1", "token": "s3cret"}',
    "MY_OWN": "s3cret",  # nothing that a job looks at
    "LDAP_BIND": "s3cret",
}


def test_everything_is_told_without_tensorflow_in_the_command(jobs: Jobs) -> None:
    out = jobs.directory / "out.json"
    code = (
        "import sys, pathlib, contextlib, io\n"
        "from tfrun.cli.main import main\n"
        "text = io.StringIO()\n"
        "with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):\n"
        "    main(['env', '--json'])\n"
        f"pathlib.Path({str(out)!r}).write_text(text.getvalue())\n"
        "sys.exit(' '.join({'tensorflow', 'keras', 'numpy'} & set(sys.modules)) or None)\n"
    )
    env = {**jobs.environment, **SECRETS, "SLURM_JOB_ID": "17", "TF_CONFIG": "{}"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=170
    )
    assert (done.returncode, done.stderr) == (0, "")
    text = out.read_text()
    assert "s3cret" not in text and str(Path.home()) + "/" not in text
    found = json.loads(text)
    assert found["tfrun"]["version"] == tfrun.__version__
    assert found["python"]["version"] == sys.version.split()[0]
    there = versions()
    assert list(found["packages"].values())[:2] == [there["TensorFlow"], there["Keras"]]
    assert {"numpy", "aiohttp", "psutil"} <= found["packages"].keys()
    assert found["tensorflow"]["keras"]["backend"] == "tensorflow"
    assert {"cuda", "gpus"} <= found["tensorflow"].keys()
    here = found["machine"]
    assert here["memory"]["total"] > here["memory"]["free"] > 0
    assert here["cores"]["all"] >= here["cores"]["usable"] > 0
    assert here["disks"]["shared memory"]["total"] > 0
    assert here["ports"]["reserved"] and here["system"]["kernel"].startswith("Linux")
    assert found["schedulers"]["Slurm"]["SLURM_JOB_ID"] == "17"
    assert found["variables"]["TF_CONFIG"] == "{}"
    assert found["variables"]["TFRUN_TOKEN"] == machine.HIDDEN


def test_secrets_are_hidden_and_what_is_none_is_shown() -> None:
    others = {
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "KERAS_BACKEND": "tensorflow",
        "TFRUN_KEEP": "3",
        "TF_FORCE_KEYWORD": "x",
        "PYTHONPATH": "/here",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9001",
    }
    found = machine.variables({**SECRETS, **others})
    assert "s3cret" not in str(found)
    assert {name: found[name] for name in others} == others
    assert found["https_proxy"] == f"http://{machine.HIDDEN}@proxy:8080"
    assert json.loads(found["TF_SERVICE"]) == {"address": "a:1", "token": machine.HIDDEN}
    assert not {"MY_OWN", "LDAP_BIND"} & found.keys()


def test_the_home_directory_is_written_otherwise() -> None:
    found = {"a": ["/home/me/x", "/home/meg/x"], "b": {"c": "p:/home/me/y"}}
    wanted = {"a": ["~/x", "/home/meg/x"], "b": {"c": "p:~/y"}}
    assert report.without_home(found, "/home/me") == wanted
    assert report.without_home(found, "/") == found


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            "raise ImportError('no libcuda here')",
            "importing it fails: ImportError: no libcuda here",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "importing it ends in SIGILL"),
        ("import threading; threading.Event().wait()", "importing it took more than 1 s"),
    ],
)
def test_what_is_wrong_with_tensorflow_is_said(
    module: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tensorflow.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seconds = 1 if "Event" in module else installed.SECONDS
    assert installed.ask_tensorflow(seconds) == {"error": said}


def test_the_lines_can_be_written_of_all_that_is_found() -> None:
    here = machine.facts()
    found = {
        "tfrun": installed.about_tfrun(),
        "python": installed.about_python(),
        "packages": {"tensorflow": "", "keras": "", "numpy": "2.0"},
        "tensorflow": {"error": "not installed"},
        "machine": {
            **here,
            "gpus": [{"name": "H100", "driver": "570.1", "memory": "81559 MiB"}] * 2,
            "memory": {"total": 8 << 30, "free": 4 << 30, "limit": 2 << 30},
            "limits": {"open files": 1024, "processes": None},
            "ports": {"range": None, "reserved": False},
        },
        "schedulers": {"Slurm": {"command": "/bin/sbatch"}, "Kubernetes": {"TFRUN_GROUP": "a,b"}},
        "variables": {"TF_A": "1", "TF_B": "2"},
    }
    lines = list(report.lines(found))
    for line in (
        "TensorFlow     not installed",
        "memory         4.0 of 8.0 GB free, at most 2.0 GB for this job",
        "GPUs           H100 (81559 MiB), H100 (81559 MiB), driver 570.1",
        "limits         open files 1024, processes unlimited",
        "free ports     of an unknown range, but none can be reserved",
        "Slurm          not in a job of it, /bin/sbatch is here",
        "Kubernetes     TFRUN_GROUP=a,b",
        "variables      TF_A=1",
        "               TF_B=2",
    ):
        assert line in lines, lines
    cuda = {"cuda": "12.5", "cudnn": "9", "rocm": False, "gpus": ["GPU:0"], "keras": {}}
    lines = list(report.lines({**found, "tensorflow": cuda, "schedulers": {}}))
    assert any("built with CUDA 12.5, cuDNN 9, sees 1 GPU" in line for line in lines)
