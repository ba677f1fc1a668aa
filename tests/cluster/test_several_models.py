"""A script that trains several models, ended and started again: in the right call, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by

STEPS = [(0, 20), (1, 20), (2, 20), (3, 10)]  # the calls, and how many steps each has


def run(
    folder: Path, *options: str, die: str = "", env: dict[str, str] | None = None
) -> tuple[str, list[tuple[int, int]]]:
    """The terminal, and the calls and steps that the chief has seen."""
    folder.mkdir(exist_ok=True)
    (folder / "seen.txt").unlink(missing_ok=True)
    shown = shown_by(
        [TFRUN, "-n", "2", "--seed", "3", "--max-restarts", "0", "--run-dir", f"{folder}/run"]
        + [*options, str(SCRIPTS / "several_models.py")],
        {"DIE": die, "TEST_FOLDER": str(folder), **(env or {})},
        timeout=100,
        exit_code=137 if die else 0,
    )
    lines = (folder / "seen.txt").read_text().splitlines()
    calls = [(int(call), int(step)) for call, step in (line.split() for line in lines)]
    return shown, calls


def weights(shown: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.startswith("WEIGHTS")]
    return line


@pytest.mark.timeout(300)
def test_it_goes_on_from_the_disk_in_the_right_call(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    wanted, steps = run(tmp_path / "undisturbed", env={"TFRUN_STATE_DIR": str(state)})
    assert not list(state.glob("state-*"))  # without restarts nobody would read a snapshot
    assert [call for call, _ in steps] == [call for call, count in STEPS for _ in range(count)]
    options, folder = ("--checkpoint-every", "epoch"), tmp_path / "ended"
    seen = steps[:0]
    # In the second model's second epoch, in the loop's, in the first model's second call.
    for die in ("1:13", "2:14", "3:24"):
        _, found = run(folder, *options, die=die)
        start = steps.index(found[0])
        assert found == steps[start : start + len(found)]  # without a gap, and in order
        assert start <= len(seen) and (not seen or start >= len(seen) - 14)
        seen = steps[: start + len(found)]
    shown, found = run(folder, *options)
    assert "continuing from the last checkpoint" in shown
    assert found == steps[steps.index(found[0]) :]
    assert found[0] in ((3, 21), (3, 24))
    assert weights(shown) == weights(wanted)
