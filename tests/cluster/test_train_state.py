"""Custom loops: workers die anywhere in a script, and it ends as if nobody had, bit for bit."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from workers import SCRIPTS, TFRUN, environment, shown_by

from tfrun.observe.events import read_events
from tfrun.observe.monitor import view_of
from tfrun.observe.step_reports import PARTS

# "round:rank:loop:step:where", see scripts/train_state.py; each round loses a worker elsewhere.
KILLS = {
    "dataset steps": [
        # the chief before an update, a worker after one, both at once
        "0:0:0:4:b 1:1:0:12:a 2:0:0:20:b 2:1:0:20:b",
        # in a validation, in the second loop (also the chief), at the last step
        "0:1:0:8:v 1:1:1:3:b 2:0:1:11:a 3:1:1:17:b",
        # before the first step, when the first loop is over, at the second one's start, after it
        "0:1:0:0:b 1:0:0:26:v 2:1:1:0:b 3:1:2:0:b",
    ],
    "tf.data steps": ["0:1:0:11:b 1:0:1:5:a"],
    "distributed steps": ["0:0:0:11:a 1:1:1:12:b"],
    "dataset commit": ["0:1:0:7:b 1:0:0:19:a 2:1:1:4:b"],
}
# `fit` goes on in such a pipeline, too, and a loop in one that it has distributed.
LONG = ("tf.data steps", "dataset commit")
SNAPSHOT_EVERY = 5  # steps; what is lost when nobody is left to write one


def job(script: str, **env: str) -> str:
    """Runs the script on two workers; returns the terminal."""
    folder = env["TEST_FOLDER"]
    return shown_by(
        [TFRUN, "-n", "2", "--seed", "5", "--snapshot-every", str(SNAPSHOT_EVERY)]
        + ["--run-dir", f"{folder}/run", str(SCRIPTS / script)],
        env,
        timeout=120,
    )


def run(variant: str, kills: str) -> tuple[dict[str, Any], list[list[str]], str]:
    """What the chief found, the steps that each rank has seen, and the terminal."""
    data, loop = variant.split()
    with tempfile.TemporaryDirectory() as folder:
        shown = job(
            "train_state.py", KILLS=kills, TEST_FOLDER=folder, TEST_DATA=data, TEST_LOOP=loop
        )
        found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(2)]
        assert found[0]["weights"] == found[1]["weights"]
        seen = [Path(folder, f"seen-{rank}.txt").read_text().splitlines() for rank in range(2)]
        if not kills:
            check_numbers(Path(folder, "run"))
        return found[0], seen, shown


def check_numbers(run_dir: Path) -> None:
    """A loop of the script's own is seen as `fit` is: steps, samples, where the time goes."""
    told = [e for e in read_events(run_dir / "events.jsonl") if e["event"] == "progress"]
    assert sum(event["steps"] for event in told) == 27 - 1 + 18 - 1  # without the traced ones
    view = view_of(run_dir).to_json(time.time())
    training = view["training"]
    assert training["step"] == 18 and training["global_batch"] == 20
    rate = pytest.approx(20 / training["step_seconds"], rel=0.01)
    assert training["samples_per_second"] == rate
    assert all(training["split"][part] is not None for part in PARTS), training
    assert training["split"]["compute"] > 0
    assert all(task["own_seconds"] and task["rss_bytes"] for task in view["tasks"])


@functools.cache
def undisturbed(variant: str) -> tuple[dict[str, Any], list[list[str]]]:
    return run(variant, "")[:2]


@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    ("variant", "kills"),
    [
        pytest.param(v, kills, marks=[pytest.mark.thorough] * (v in LONG))
        for v in KILLS
        for kills in KILLS[v]
    ],
)
def test_bit_for_bit(variant: str, kills: str) -> None:
    (wanted, steps), (found, seen, shown) = undisturbed(variant), run(variant, kills)
    assert found["weights"] == wanted["weights"], shown
    assert found["iterations"] == wanted["iterations"] == 45
    for name in ("middle", "end", "decay", "random"):
        assert found[name] == wanted[name], name
    # Sums of metrics are added up in another order after a resume.
    assert found["accuracy"] == pytest.approx(wanted["accuracy"], rel=1e-5)
    # Each step is seen once, with the loss that it has; one that a death has cut off need not be
    # seen to its end by everybody, and the step of one who dies after its update by nobody: the
    # others may have made it, too, and be cut off while they wait for its loss.
    assert len(steps[0]) == len(set(steps[0])) == 45
    for rank in range(2):
        assert set(seen[rank]) <= set(steps[rank])
    killed = [kill.split(":") for kill in kills.split()]
    unseen = set(steps[0]) - set(seen[0]) - set(seen[1])
    after = {(loop, step) for _, _, loop, step, where in killed if where == "a"}
    assert {tuple(line.split()[:2]) for line in unseen} <= after
    dead = [number for number, *_ in killed]
    rounds = len(set(dead))
    repeated = sum(len(lines) - len(set(lines)) for lines in seen)
    assert repeated <= rounds + 2 * SNAPSHOT_EVERY * (len(dead) - rounds)
    assert f"{rounds} restart" in shown
    assert f"rounds {rounds}" in shown
    assert "Traceback" not in shown and "UnavailableError" not in shown


def test_a_job_that_was_told_to_end_goes_on_from_the_disk(tmp_path: Path) -> None:
    command = [TFRUN, "-n", "2", "--seed", "5", "--run-dir", str(tmp_path / "run")]
    command.append(str(SCRIPTS / "train_state.py"))
    env = environment({"TEST_FOLDER": str(tmp_path)})
    with subprocess.Popen(
        command,
        env={**env, "WAIT": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as first:
        deadline = time.monotonic() + 60
        while not (tmp_path / "waits").exists():
            assert time.monotonic() < deadline and first.poll() is None
            time.sleep(0.02)
        first.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        shown, _ = first.communicate(timeout=60)
    assert first.returncode == 75, shown
    assert not (tmp_path / "0.json").exists()
    again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=True)
    found = json.loads((tmp_path / "0.json").read_text())
    wanted, steps = undisturbed("dataset steps")
    assert {**found, "accuracy": 0} == {**wanted, "accuracy": 0}, again.stderr
    seen = (tmp_path / "seen-0.txt").read_text().splitlines()
    assert set(seen) == set(steps[0])


@pytest.mark.timeout(200)
def test_a_loop_with_a_checkpoint_of_its_own_goes_on_from_it(tmp_path: Path) -> None:
    found = {}
    for name, kill in (("undisturbed", ""), ("killed", "0:1:9")):
        folder = tmp_path / name
        folder.mkdir()
        shown = job("train_state_checkpoint.py", KILL=kill, TEST_FOLDER=str(folder))
        texts = [(folder / f"{rank}.txt").read_text().split() for rank in range(2)]
        assert texts[0] == texts[1]
        found[name] = texts[0]
    assert found["undisturbed"][0] == "0" and found["killed"][0] == "8", shown
    assert found["killed"][1:] == found["undisturbed"][1:]
    assert "1 restart" in shown
