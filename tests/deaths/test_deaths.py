"""A worker dies at every place of a training, and what comes out is what comes out undisturbed.

Every hook of Keras's callbacks and the inside of a step, in the first and in the last step of each
of three epochs, once and twice in a row, with every kind of data: bit for bit. A job has a death in
each epoch with steps in between, because a death right after another one hides what the first did.
CI runs a share of the jobs, another one every day; `make test-deaths` runs all of them.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from shares import in_share

SCRIPT = Path(__file__).parent / "scripts" / "dies.py"
TFRUN = str(Path(sys.executable).with_name("tfrun"))
EPOCHS = 3
# In the order in which they come in an epoch of four steps.
FIT = (
    *("epoch_begin", "batch_begin:0", "in_step:0", "batch_end:0"),
    *("batch_begin:3", "in_step:3", "batch_end:3"),
    *("test_begin", "test_batch_begin:0", "test_batch_end:0", "test_end", "epoch_end"),
)
LOOP = (
    *("batch_begin:0", "in_step:0", "batch_end:0", "batch_begin:3", "in_step:3", "batch_end:3"),
    "epoch_end",
)
KINDS = (
    *("arrays", "dataset", "seeded", "unseeded", "map", "cache", "repeat", "repeat inside"),
    *("filter", "shared shuffle", "generator", "from_generator", "pydataset", "layers", "stops"),
    *("drawn", "drawn pydataset", "drawn from_generator", "drawn map", "drawn besides"),
    *("noise", "own step", "outside", "augmented"),
    *("in python", "in python besides", "rows", "callbacks", "best", "holds", "reaches"),
    *("swaps", "swaps in epochs"),
    *("no strategy", "loop", "loop, tf.data", "loop, distributed"),
    *("loop, outside", "loop, seeds"),
)
# Of scripts/alone/every_optimizer.py: one job with each, every one with deaths at other places.
OPTIMIZERS = (
    *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lamb", "Lion"),
    *("LossScaleOptimizer", "MultiOptimizer", "Muon", "Nadam", "RMSprop", "SGD"),
    *("ScheduleFreeAdamW", "SGD, momentum", "RMSprop, centered", "Adam, averaged"),
    *("Adam, accumulated", "AdamW, scheduled"),
)
KINDS += tuple(f"optimizer, {name}" for name in OPTIMIZERS)
# What is not reached again when the round goes on behind it. What a loop does after an epoch is
# each worker's own here: the other one is in the next step by then.
PASSED = ("batch_end:0", "batch_end:3")
PASSED_IN_LOOP = (*PASSED, "epoch_end")
STOPS_AT = 1  # the step of the last epoch in which a callback stops


# Of workers that stay in their processes: so many, and pieces of a batch. Four of them may die.
IN_PLACE, PIECES = 5, 6
AT_ONCE = ("arrays", "seeded", "generator", "layers")
STAYS = [kind for kind in KINDS if kind not in ("no strategy", "loop, outside")]


def schedules(kind: str, workers: int = 2) -> list[list[str]]:
    """Returns the KILLS of each job: every place in every epoch comes in one of them."""
    places = LOOP if kind.startswith("loop") else FIT
    workers = 1 if kind == "no strategy" else workers
    made = []
    for number in range(len(places)):
        kills = []
        for epoch in range(EPOCHS):
            position = (number + epoch * 5) % len(places)
            rank = (number + epoch) % workers
            twice = (number + epoch) % 3 == 0
            for place in _in_row(places, position, twice, again=(number + epoch) % 2 == 0):
                if kind == "stops" and epoch == EPOCHS - 1:
                    place = place.replace(":3", f":{STOPS_AT}") if "batch" in place else place
                    if place.startswith("in_step:3"):
                        continue
                kills.append(f"{rank}:{epoch}:{place}")
                rank = (rank + 1) % workers
        made.append(kills)
    if kind.startswith("optimizer, "):
        return made[OPTIMIZERS.index(kind.partition(", ")[2]) % len(made) :][:1]
    return made


def _in_row(places: tuple[str, ...], position: int, twice: bool, *, again: bool) -> list[str]:
    """One place; or it twice, where it comes again; or it and the next one."""
    place = places[position]
    if not twice:
        return [place]
    if again and place not in (PASSED_IN_LOOP if places is LOOP else PASSED):
        return [place, place]
    return places[position : position + 2]  # type: ignore[return-value]


def run(
    kind: str, kills: list[str], *, in_place: bool = False
) -> tuple[dict[str, Any], str, list[bool], list[str]]:
    """What the chief has written, what the terminal shows, and which recoveries were in place.

    And of workers that stay, which of the kills have come about.
    """
    with tempfile.TemporaryDirectory() as folder:
        workers = "1" if kind == "no strategy" else str(IN_PLACE) if in_place else "2"
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("TFRUN_", "TF_CONFIG"))}
        threads = {"TF_NUM_INTRAOP_THREADS": "1", "OMP_NUM_THREADS": "1"}
        out = Path(folder, "out.json")
        own = {"KIND": kind, "KILLS": " ".join(kills), "TEST_OUT": str(out)}
        # Not to be given up: one worker alone begins again, and may die before it tells of a step.
        options = ["--seed", "5", "--max-restarts", "9", "--run-dir", f"{folder}/run"]
        if in_place:
            own["IN_PLACE"], options = "1", [*options, "--in-place", "--replicas", str(PIECES)]
        else:
            options.append("--no-in-place")
        job = subprocess.run(
            [TFRUN, "-n", workers, *options, str(SCRIPT)],
            env={**keep, **threads, **own, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=150,
            check=False,
        )
        assert job.returncode == 0, job.stdout
        lines = Path(folder, "run/events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        # Who is long in coming is ended; once nobody is left who stays, all begin again.
        late = any(e["event"] == "worker_exited" and e.get("requested") for e in events)
        where = [e["in_place"] or late for e in events if e["event"] == "recovered"]
        made = sorted(int(path.name[6:]) for path in Path(folder).glob("death-*"))
        return json.loads(out.read_text()), job.stdout, where, [kills[number] for number in made]


@functools.cache
def undisturbed(kind: str, *, in_place: bool = False) -> dict[str, Any]:
    return run(kind, [], in_place=in_place)[0]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        pytest.param(kind, kills, id=f"{kind}-{number}")
        for kind in KINDS
        for number, kills in enumerate(schedules(kind))
    ],
)
def test_what_comes_out_is_what_comes_out_undisturbed(kind, kills, request):
    if not in_share(request.node.callspec.id, of=20):
        pytest.skip("another day's turn; make test-deaths runs it")
    found, shown, _, _ = run(kind, kills)
    assert "resumed in place" not in shown and shown.count("killed by") == len(kills), (
        kills,
        shown,
    )
    compare(kind, kills, found, undisturbed(kind), shown)


def at_once() -> list[list[str]]:
    """Returns the KILLS of further jobs: of each place one, where two workers die at once."""
    epochs = itertools.cycle(range(EPOCHS))
    return [[f"{epoch},3:{epoch}:{place}"] for epoch, place in zip(epochs, FIT, strict=False)]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        pytest.param(kind, kills, id=f"in place, {kind}-{number}")
        for kind in STAYS
        for number, kills in enumerate(
            [*schedules(kind, IN_PLACE), *(at_once() if kind in AT_ONCE else ())]
        )
    ],
)
def test_workers_that_stay_lose_nothing(kind, kills, request):
    if not in_share(request.node.callspec.id, of=45):
        pytest.skip("another day's turn; make test-deaths runs it")
    found, shown, where, made = run(kind, kills, in_place=True)
    assert all(where), f"{kills} {where}\n{shown}"
    # Of two in a row the second may be at a place that those who stay have passed.
    epochs = {kill.split(":")[1]: kill for kill in reversed(kills)}
    assert set(epochs.values()) <= set(made), f"{kills} {made}\n{shown}"
    compare(kind, made, found, undisturbed(kind, in_place=True), shown)


def compare(
    kind: str, kills: list[str], found: dict[str, Any], expected: dict[str, Any], shown: str
) -> None:
    """Fails where what came out is not what was to come out, or somebody did not die."""
    restarts = re.search(r"finished in .* (\d+) restart", shown)
    # A successor that comes when the job is in its next `fit` leaves again, which is one more.
    assert restarts is not None and int(restarts[1]) >= len(kills), f"{kills}\n{shown}"
    assert found == expected, (kills, shown)
