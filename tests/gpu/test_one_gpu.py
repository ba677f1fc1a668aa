"""Jobs on a machine with a GPU. They take a minute or two; CI has none, and leaves them out.

What several GPUs do (NCCL between them) is not here: nobody has run it yet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = Path(__file__).with_name("train.py")
TFRUN = str(Path(sys.executable).with_name("tfrun"))
HAS_GPU = bool(shutil.which("nvidia-smi")) and "GPU 0" in os.popen("nvidia-smi -L").read()
pytestmark = [
    pytest.mark.skipif(not HAS_GPU, reason="NO GPU HERE: what tfrun does with one is not tested"),
    pytest.mark.timeout(300),
]


def trained(folder: Path, *options: str, **environment: str) -> tuple[set[str], str]:
    """The last lines of all workers, without doubles, and all that was shown."""
    folder.mkdir(exist_ok=True)
    job = subprocess.run(
        [TFRUN, "--log-all", *options, TRAIN],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert job.returncode == 0, job.stdout
    ends = {line.split("ENDS ")[1] for line in job.stdout.splitlines() if "ENDS " in line}
    assert len(ends) == 1 and "on GPU True" in ends.pop(), job.stdout
    bits = {
        line.split("ENDS ")[1].split()[0] for line in job.stdout.splitlines() if "ENDS " in line
    }
    return bits, job.stdout


SAME = ("--deterministic", "--replicas", "2")


def test_one_worker_and_two_give_the_same_bits(tmp_path: Path) -> None:
    one, _ = trained(tmp_path / "one", "-n", "1", *SAME)
    two, _ = trained(tmp_path / "two", "-n", "2", *SAME)
    ring, _ = trained(tmp_path / "ring", "-n", "2", "--deterministic", "--communication", "ring")
    assert one == two == ring


@pytest.mark.parametrize("options", [(), ("--in-place",), ("--communication", "ring")])
def test_a_killed_worker_changes_no_bit(tmp_path: Path, options: tuple[str, ...]) -> None:
    # Long enough for a successor to take its place, which has to compute on the GPU, too.
    run = ("-n", "2", "--deterministic", *options)
    whole, _ = trained(tmp_path / "whole", *run, STEPS="600")
    died, shown = trained(
        tmp_path / "died", *run, STEPS="600", DIES_ONCE=str(tmp_path / "died.mark")
    )
    assert died == whole and "killed by SIGKILL" in shown
    assert ("a successor took its place" in shown) is ("--in-place" in options)


def test_the_ring_takes_over_where_nccl_fails(tmp_path: Path) -> None:
    # As two GPUs to tfrun, one to NCCL, which refuses that.
    twice = {"CUDA_VISIBLE_DEVICES": "0,0", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    _, shown = trained(tmp_path / "run", "-n", "2", **twice)
    assert "NCCL does not work on 2 of 2 workers; the job goes on with RING" in shown


def test_compiled_steps_are_told_to_be_left_out(tmp_path: Path) -> None:
    _, shown = trained(tmp_path / "run", "-n", "2", XLA="1")
    assert "jit_compile=True is left out of training" in shown
