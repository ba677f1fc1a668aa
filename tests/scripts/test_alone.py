"""Scripts for one machine, unchanged: plain Python's numbers on 1, 2, 3 workers, and after a death.

A script that fails for somebody goes into alone/, with its first lines as other_people.py has them:
what is expected there is held against plain Python. A worker's death changes no digit, also where
noise does. A share of them is run every day; `make test-scripts` runs all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from other_people import Number, differences, expected, new_warnings
from test_scripts import SECONDS, SIZES, compared, environment, finished, run, tail

from shares import in_share

ALONE = Path(__file__).parent / "alone"
SHARES = 20
COUNTS = str(Path(__file__).parent)  # where one_dies.py is
COUNTS_STEPS = "import one_dies\n"
# Of what is printed before it trains, and of what callbacks print, there is more in two rounds.
ROUND = re.compile("^--- round 1(, in place)? ---$", re.MULTILINE)
DEATHS = {"stays": {}, "starts-again": {"TFRUN_IN_PLACE": "no"}}  # who is left does so


def cases() -> list:
    found = []
    for path in sorted(ALONE.glob("*.py")):
        marks = []
        if not in_share(f"alone {path.name}", of=SHARES):
            reason = "another day's turn; make test-scripts runs it"
            marks.append(pytest.mark.skip(reason=reason))
        found.append(pytest.param(path, id=path.stem, marks=marks))
    return found


@pytest.mark.timeout(5 * SECONDS + 30)
@pytest.mark.parametrize("path", cases())
def test_an_unchanged_script_prints_what_plain_python_prints(path, jobs, tmp_path):
    text = path.read_text()
    rules = expected(text)
    counting = tmp_path / "counting" / path.name
    counting.parent.mkdir()
    counting.write_text(COUNTS_STEPS + text)
    plain, steps = plain_python(counting, rules, tmp_path / "0")
    assert plain, "it prints no number"
    undisturbed: list[Number] = []
    warnings: list[str] = []
    for size in SIZES:
        many, more = run(path, rules, jobs, tmp_path / str(size), size)
        warnings = warnings if size > 1 else more
        found = differences(plain, many, rules.tolerance) + new_warnings(warnings, more)
        assert not found, f"{size}: {found}"
        events = (tmp_path / str(size) / "run" / "events.jsonl").read_text()
        assert ("adopted: " in events) == (size > 1)
        undisturbed = many if size == 2 else undisturbed
    for name in DEATHS:
        killed = with_a_death(counting, rules, jobs, tmp_path / name, steps // 2 + 1)
        found = differences(last_of_each(undisturbed), last_of_each(killed), 1e-9)
        assert not found, f"after a death, {name}: {found}"


def plain_python(path: Path, rules, directory: Path) -> tuple[list[Number], int]:
    """What `python script.py` prints, and in how many steps it trains."""
    counts = directory / "steps"
    env = {**environment(rules, directory), "PYTHONPATH": COUNTS, "COUNTS": str(counts)}
    done = subprocess.run(
        [sys.executable, path],
        env={**os.environ, **env},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"plain Python: {done.returncode}\n{tail(done.stderr)}"
    return compared(done.stdout, rules), int(counts.read_text())


def with_a_death(path: Path, rules, jobs, directory: Path, step: int) -> list[Number]:
    """What the chief prints in the round after one of two workers was killed in a step."""
    env = environment(rules, directory)
    env |= {"PYTHONPATH": COUNTS, "DIES_AT": str(step), "DIES_RANK": str(step % 2)}
    env |= DEATHS[directory.name]
    options = ("-n", 2, "--max-restarts", 1, *rules.options)
    _, err = finished(jobs, options, path, env, directory, f"killed in step {step}")
    assert "killed by SIGKILL" in err and "1 restart" in err, tail(err)
    logs = [(directory / "run/logs" / f"worker-{rank}.log").read_text() for rank in (0, 1)]
    printed = [ROUND.split(text, maxsplit=1)[-1] if ROUND.search(text) else "" for text in logs]
    if "resumed in place" in err:  # who stays has printed some of it before
        printed[0] = logs[0]
    chief, other = (last_of_each(compared(text, rules)) for text in printed)
    names = {number.name for number in other}
    assert not differences([n for n in chief if n.name in names], other, 1e-9)
    return chief


def last_of_each(numbers: list[Number]) -> list[Number]:
    """The last number of each name, by name: a round that goes on prints few of a loop's."""
    last = {number.name: number for number in numbers}
    return [last[name] for name in sorted(last)]
