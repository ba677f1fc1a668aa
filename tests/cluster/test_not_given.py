"""After a death a line names what of the step nobody was told of, and what is lost with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from workers import SCRIPTS, TFRUN, shown_by


def line_of(comment: str) -> int:
    """The script's line that ends with it."""
    lines = (SCRIPTS / "not_given.py").read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if line.endswith(comment))


@pytest.mark.timeout(130)
@pytest.mark.parametrize("how", ["loop", "fit"])
def test_what_began_anew_is_named(how: str, tmp_path: Path) -> None:
    options = ["--no-in-place", "--plain", "--seed", "5", "--run-dir", tmp_path / "run"]
    command = [TFRUN, "-n", "2", *options, SCRIPTS / "not_given.py", how, tmp_path / "died"]
    shown = shown_by(command, {}, timeout=120)
    assert shown.count("killed by SIGKILL") == 1, shown
    (line,) = (one for one in shown.splitlines() if "that the training was not given" in one)
    names = line.partition("not given: ")[2].partition(". They")[0]
    of_keras = "seen/count, seen/total, sequential_1/unknown/bias, sequential_1/unknown/kernel"
    first, late = line_of("# in the first step"), line_of("# after the TrainState")
    own = [f"the one of not_given.py:{number}" for number in (first, late)]
    if how == "fit":  # what it has kept of its own variable is not there when it goes on
        own = []
        assert f"no model holds at not_given.py:{first}, after its training" in shown, shown
    assert set(names.split(", ")) == {*of_keras.split(", "), "sgd_1/iteration", *own}, line
    assert shown.count("changes a lookup table at ") == 1, shown
    (line,) = (one for one in shown.splitlines() if "TensorFlow ops that begin anew" in one)
    assert "`on_replica`" in line or "not_given.py:" in line, line
    lines = [one for one in shown.splitlines() if "in Python variables" in one]
    assert ["`least`, `rates` in Python" in one for one in lines] == [True] * (how == "loop")
