"""Other people's scripts, unchanged, on 1, 2 and 3 workers: the same numbers, and no warning.

`make test-nets` runs some, others every day; `make test-scripts` all of them. A script that fails
for somebody goes into people/, with its first lines as other_people.py has them.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from other_people import (
    ALWAYS,
    PEOPLE,
    SHARES,
    Expected,
    Number,
    differences,
    disagreements,
    expected,
    new_warnings,
    numbers_of,
    warnings_in,
)

from shares import in_share

SCRIPTS = sorted(PEOPLE.glob("*.py"))
SIZES = (1, 2, 3)
SECONDS = 120
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def cases() -> list:
    found = []
    for path in SCRIPTS:
        marks = []
        if path.name not in ALWAYS and not in_share(path.name, of=SHARES):
            reason = "another day's turn; make test-scripts runs it"
            marks.append(pytest.mark.skip(reason=reason))
        if waits_for := expected(path.read_text()).waits_for:
            marks.append(pytest.mark.xfail(strict=False, reason=f"waits for {waits_for}"))
        found.append(pytest.param(path, id=path.stem, marks=marks))
    return found


@pytest.mark.timeout(len(SIZES) * SECONDS + 30)
@pytest.mark.parametrize("path", cases())
def test_many_workers_print_what_one_prints(path, jobs, tmp_path):
    rules = expected(path.read_text())
    one, warnings = run(path, rules, jobs, tmp_path / "1", 1)
    assert one, "it prints no number"
    for size in SIZES[1:]:
        many, more = run(path, rules, jobs, tmp_path / str(size), size)
        found = differences(one, many, rules.tolerance) + new_warnings(warnings, more)
        assert not found, f"{size} workers: " + "\n".join(found)


def run(path: Path, rules: Expected, jobs, directory: Path, size: int):
    """Runs a script in a directory of its own.

    Returns:
      the numbers that the chief has printed, which no worker prints otherwise; all warnings.
    """
    env = environment(rules, directory)
    if not rules.same:
        # By the variable, which counts where it can: some have loops that nothing is compared in.
        env["TFRUN_SYNC_CHECK"] = "1"
    options = ("-n", size, *rules.options)
    out, err = finished(jobs, options, path, env, directory, f"{size} workers")
    assert " restart" not in err, f"{size} workers: one was lost\n{tail(err)}"
    chief = compared(out, rules)
    warnings = warnings_in(err, rules.shows)
    # The workers of parameter servers do not run the script.
    runs = "chief-*.log" if "--ps" in rules.options else "worker-*.log"
    for log in sorted((directory / "run/logs").glob(runs)):
        text = log.read_text(errors="replace")
        found = disagreements(chief, compared(text, rules))
        assert not found, f"{size} workers: {log.stem} prints " + "\n".join(found)
        warnings += warnings_in(text, rules.shows)
    return chief, warnings


def environment(rules: Expected, directory: Path) -> dict[str, str]:
    """Makes a directory for a run. Keras's float type is stated in it, not in the script."""
    (directory / "keras").mkdir(parents=True)
    (directory / "keras/keras.json").write_text(json.dumps({"floatx": rules.floatx}))
    return {**QUIET, "KERAS_HOME": str(directory / "keras")}


def finished(jobs, options, path: Path, env, directory: Path, what: str) -> tuple[str, str]:
    """What a job prints, out and err, that ends well and in time."""
    job = jobs.start("--run-dir", "run", *options, path, env=env, cwd=directory)
    try:
        out, err = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        job.kill()
        out, err = job.communicate()
        pytest.fail(f"{what}: more than {SECONDS} s\n{tail(out)}\n{tail(err)}")
    assert job.returncode == 0, f"{what}: exit code {job.returncode}\n{tail(err)}"
    return out, err


def compared(output: str, rules: Expected) -> list[Number]:
    return [number for number in numbers_of(output) if number.name not in rules.not_compared]


def tail(text: str) -> str:
    return text[-6000:]
