"""Survivors stay in a loop of the script's own: a death costs a step, and changes no bit."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from workers import SCRIPTS, TFRUN, shown_by

from tfrun.observe.events import read_events

OVER = "it is in no training"
SCRIPT = SCRIPTS / "in_place_loops.py"


def run(
    workers: int,
    *args: str,
    kills: str = "",
    kill: str = "",
    options: tuple[str, ...] = (),
    script: Path = SCRIPT,
) -> Any:
    """What the chief has printed at the end, the events, and the terminal."""
    with tempfile.TemporaryDirectory() as folder:
        shown = shown_by(
            [TFRUN, "-n", str(workers), "--seed", "5", "--threads-per-worker", "1", *options]
            + ["--run-dir", f"{folder}/run", str(script), *args],
            {"KILLS": kills, "KILL": kill},
            timeout=150,
        )
        events = list(read_events(Path(folder, "run", "events.jsonl")))
    lines = dict(
        line.split(" ", 1) for line in shown.splitlines() if line[:5] in ("BITS ", "TOLD ")
    )
    return lines, events, shown


@functools.cache
def undisturbed(workers: int, *args: str, script: Path = SCRIPT) -> dict[str, str]:
    return run(workers, *args, script=script)[0]


def recovered(events: list[dict[str, Any]]) -> list[tuple[bool, int]]:
    """Of each failure whether it was recovered in place, and the steps that were lost."""
    return [(e["in_place"], e["lost_steps"]) for e in events if e["event"] == "recovered"]


def why_not(events: list[dict[str, Any]]) -> str:
    """Why a worker could not stay while it trained."""
    told = [e["report"] for e in events if e["event"] == "worker_report"]
    return [r["why"] for r in told if r["kind"] == "can_stay" and r["why"] != OVER][-1]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("kind", "workers", "kills"),
    [
        # A worker, the chief, and two at once: before a step's calls, between them, after them.
        ("exact", 3, "0:1:3:before,0:0:9:between"),
        ("exact", 3, "0:1:3:after,0:2:3:between"),
        ("pipeline", 2, "0:0:4:between"),
        # In the first step, while the others trace it; and where the first of its calls has made an
        # optimizer's slots, and assigned them.
        ("exact", 2, "0:0:0:before"),
        ("exact", 3, "0:1:0:before,0:0:0:between"),
        # In the last step of an epoch, whose pieces have other sizes.
        ("pipeline", 2, "0:1:5:before"),
    ],
)
def test_who_is_left_stays_and_no_bit_changes(kind: str, workers: int, kills: str) -> None:
    wanted = undisturbed(workers, kind)
    found, events, shown = run(workers, kind, kills=kills)
    assert found["BITS"] == wanted["BITS"], shown
    deaths = recovered(events)
    assert deaths and all(death == (True, 0) for death in deaths), shown
    if "0:0:" not in kills:  # the chief has seen every step, and each one once
        assert found["TOLD"] == wanted["TOLD"], shown
    started = [e for e in events if e["event"] == "worker_started"]
    pids = {e["pid"] for e in started if e["round"] == 0}
    last = max(e["round"] for e in started)
    assert len(pids & {e["pid"] for e in started if e["round"] == last}) == workers - len(
        kills.split(",")
    )
    assert "in place" in shown and "Traceback" not in shown


@pytest.mark.timeout(200)
def test_a_spare_joins_at_once() -> None:
    wanted = undisturbed(2, "exact")
    found, events, shown = run(2, "exact", kills="0:1:6:before", options=("--spares", "1"))
    assert found == wanted, shown
    assert recovered(events) == [(True, 0)], shown


@pytest.mark.timeout(200)
def test_a_first_step_that_was_cut_off_makes_no_variables_twice(tmp_path: Path) -> None:
    """Of slots that are no zeros workers are told by the chief: one that has gone tells nobody."""
    script = tmp_path / "with_adagrad.py"
    adagrad = "keras.optimizers.Adagrad(0.01)"
    script.write_text(
        SCRIPT.read_text().replace("keras.optimizers.SGD(0.01, momentum=0.9)", adagrad)
    )
    assert adagrad in script.read_text()
    wanted, _, _ = run(2, "exact", script=script)
    found, events, shown = run(2, "exact", kills="0:1:0:before", script=script)
    assert found == wanted, shown
    assert recovered(events) == [(False, 0)], shown


@pytest.mark.timeout(200)
def test_a_step_that_assigns_nothing_but_weights_stays() -> None:
    found, events, shown = run(2, "exact", "bare", kills="0:1:3:before")
    assert found == undisturbed(2, "exact", "bare"), shown
    assert recovered(events) == [(True, 0)], shown


@pytest.mark.timeout(200)
@pytest.mark.parametrize("kill", ["1:6", "0:6", "1:0"])
def test_after_the_update_nobody_is_waited_for(kill: str) -> None:
    """What the step reduces then has travelled with its gradients: a death there costs nothing."""
    script = SCRIPTS / "in_place_update.py"
    wanted = undisturbed(2, script=script)
    found, events, shown = run(2, script=script, kill=kill)
    assert found["BITS"] == wanted["BITS"], shown
    assert recovered(events) == [(True, 0)], shown
    if kill[0] == "1":
        assert found["TOLD"] == wanted["TOLD"], shown


@pytest.mark.timeout(200)
def test_what_the_loop_reduces_after_its_step_starts_again() -> None:
    script = SCRIPTS / "in_place_update.py"
    found, events, shown = run(2, "eager", script=script, kill="1:6")
    assert found["BITS"] == undisturbed(2, script=script)["BITS"], shown
    assert [lost for _, lost in recovered(events)] == [0], shown


@pytest.mark.timeout(200)
@pytest.mark.parametrize("kills", ["0:1:8:between", "0:0:3:before"])
@pytest.mark.parametrize("kind", [("exact",), ("pipeline", "distributed")])
def test_loops_over_distributed_data_stay(kind: tuple[str, ...], kills: str) -> None:
    """The training's as well as a validation's after each epoch."""
    args = (*kind, "validates", "late")
    found, events, shown = run(2, *args, kills=kills)
    wanted = undisturbed(2, *args)
    assert found["BITS"] == wanted["BITS"], shown
    assert recovered(events) == [(True, 0)], shown
    if "0:0:" not in kills:
        assert found["TOLD"] == wanted["TOLD"], shown


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("args", "workers", "kills"),
    [
        # What meets in each step, in the sum of what a metric has counted, or outside of both.
        (("exact", "late"), 2, "0:1:12:validating 0"),
        (("exact", "late"), 2, "0:0:12:validating 1"),
        (("exact", "late", "quiet"), 2, "0:1:12:validating 1"),
        (("pipeline", "late", "quiet", "distributed"), 2, "0:0:6:validated"),
        (("exact", "late", "eager"), 2, "0:1:6:validating 0"),
        # Two at once, and one after the other in the same validation.
        (("exact", "late"), 3, "0:1:12:validating 1,0:2:12:validating 1"),
        (("exact", "late", "quiet"), 3, "0:1:12:validating 0,0:0:12:validated"),
        # Before Keras's own evaluation, which follows, and the metric of the one before is reset.
        (("exact", "late", "evaluates"), 2, "0:1:12:resulted"),
        (("exact", "late", "evaluates"), 2, "0:0:6:evaluating"),
        (("pipeline", "late", "evaluates"), 2, "0:1:6:evaluated"),
    ],
)
def test_a_validation_of_the_scripts_own_goes_on(
    args: tuple[str, ...], workers: int, kills: str
) -> None:
    found, events, shown = run(workers, *args, "validates", kills=kills)
    wanted = undisturbed(workers, *args, "validates")
    assert found["BITS"] == wanted["BITS"], shown
    deaths = recovered(events)
    assert deaths and all(death == (True, 0) for death in deaths), shown
    if "0:0:" not in kills:
        assert found["TOLD"] == wanted["TOLD"], shown


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("exact", "validates", "late", "shuffled"), "is in another order each time"),
        (("exact", "validates", "late", "function"), "a tf.function reads data"),
        (("exact", "validates"), "what its TrainState was not given: val/total"),
        (("exact", "computes"), "it computes something of its batch by itself"),
        (("exact", "stranger"), "its step assigns what its TrainState was not given"),
        (("exact", "one"), "its step assigns what its TrainState was not given"),
    ],
)
def test_who_cannot_stay_says_why_and_starts_again(args: tuple[str, ...], why: str) -> None:
    found, events, shown = run(2, *args, kills="0:1:9:before")
    assert why in why_not(events), shown
    assert all(not in_place for in_place, _ in recovered(events)), shown
    if "stranger" not in args and "one" not in args:
        assert found["BITS"] == undisturbed(2, *args)["BITS"], shown
