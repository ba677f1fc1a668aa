"""Runs a script of scripts/ with `tfrun -n N`, and returns what each rank has written."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
TFRUN = str(Path(sys.executable).with_name("tfrun"))


def run_workers(
    script: str, n: int, env: dict[str, str] | None = None, timeout: float = 90
) -> list[dict]:
    """Runs `script` (a name in scripts/) on `n` workers under tfrun; the results by rank.

    Raises:
      AssertionError: the job failed or did not end within `timeout` seconds; the message has
        its output.
    """
    with tempfile.TemporaryDirectory() as out:
        command = [TFRUN, "-n", str(n), "--log-all", "--run-dir", f"{out}/run"]
        job = subprocess.Popen(
            [*command, SCRIPTS / "as_rank.py", out, SCRIPTS / script],
            env=environment(env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            output, _ = job.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            job.kill()  # which ends the workers too
            output, _ = job.communicate()
            raise AssertionError(
                f"{script} took more than {timeout} s:\n{output[-20000:]}"
            ) from None
        assert job.returncode == 0, f"{script} on {n} workers failed:\n{output[-20000:]}"
        # Recovery would hide a crash of TensorFlow or of ours.
        died = re.search(r"finished in .* restart", output)
        assert died is None, f"{script} on {n} workers lost one:\n{output[-20000:]}"
        return [json.loads(Path(out, f"{rank}.json").read_text()) for rank in range(n)]


def shown_by(
    command: Sequence[str | Path],
    env: dict[str, str],
    *,
    timeout: float,
    cwd: Path | None = None,
    exit_code: int = 0,
) -> str:
    """Runs a job and returns all that the terminal shows.

    Raises:
      AssertionError: it ended with another exit code; the message has its output.
    """
    job = subprocess.run(
        command,
        cwd=cwd,
        env=environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert job.returncode == exit_code, job.stdout
    return job.stdout


def results_of(script: str, n: int, timeout: float = 90, **env: str) -> list[dict]:
    """Like `run_workers`, but all tests that ask for the same job share one, also its failure."""
    outcome = _outcome(script, n, timeout, tuple(sorted(env.items())))
    assert isinstance(outcome, list), outcome
    return outcome


@functools.cache
def _outcome(
    script: str, n: int, timeout: float, env: tuple[tuple[str, str], ...]
) -> list[dict] | str:
    try:
        return run_workers(script, n, dict(env), timeout)
    except AssertionError as error:
        return str(error)


def by_case(shown: str) -> dict[str, str]:
    """What the terminal shows from each line `CASE name`, which a script prints, to the next."""
    parts = re.split(r"^CASE (.*)\n", shown, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def environment(extra: dict[str, str]) -> dict[str, str]:
    """The environment of workers: one thread each, no GPU, no log messages of TensorFlow.

    TEST_COMMUNICATION=ring runs all these tests with that collective.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TFRUN_", "TF_CONFIG"))}
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"}
    threads = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
    way = {"TFRUN_COMMUNICATION": os.environ.get("TEST_COMMUNICATION", "auto")}
    return {**inherited, **quiet, **threads, **way, **extra}
