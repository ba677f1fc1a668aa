"""`--shard-optimizer`: less of the optimizer on each worker, and no bit of anything changes."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workers import SCRIPTS, TFRUN, environment, shown_by

from conftest import wait_until
from tfrun.checkpoint.atomic_store import Store, load

SHARED = "the optimizer's state is shared by"
COMMON = "momentum adam averaged rmsprop adagrad lion"
OTHERS = "averaged_at_the_end nadam adamax adadelta ftrl accumulated scaled"
Results = list[dict[str, dict[str, Any]]]


def command(folder: str | Path, workers: int, *options: str) -> list[str]:
    return [TFRUN, "-n", str(workers), "--seed", "5", "--communication", "host"] + [
        *options,
        *("--run-dir", f"{folder}/run", str(SCRIPTS / "sharded.py")),
    ]


@contextmanager
def ran(
    optimizers: str, *options: str, workers: int = 2, memory: str = "1", **env: str
) -> Iterator[tuple[Results, str, Path]]:
    """What each worker has found, what the terminal shows, and where it all is."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {"OPTIMIZERS": optimizers, "TEST_FOLDER": folder, **env}
        variables["TFRUN_SHARED_MEMORY"] = memory
        shown = shown_by(command(folder, workers, *options), variables, timeout=150)
        paths = [Path(folder, f"{rank}.json") for rank in range(workers)]
        yield [json.loads(path.read_text()) for path in paths], shown, Path(folder)


@functools.cache
def plain(optimizers: str, workers: int = 2, memory: str = "1", ways: str = "") -> Results:
    with ran(optimizers, workers=workers, memory=memory, WAYS=ways) as (found, shown, _):
        assert SHARED not in shown
        return found


def check(found: Results, wanted: Results, *but: str) -> None:
    """All workers have the weights that they are to have, and the chief the state."""
    for rank, worker in enumerate(found):
        for name, mine in worker.items():
            theirs = wanted[rank][name]
            for what in mine.keys() - {"held", "sent", *but}:
                assert mine[what] == theirs[what], (name, what)


@pytest.mark.timeout(320)
def test_an_optimizer_ends_with_the_same_bits() -> None:
    ends_with_the_same_bits("adam averaged adagrad", 2, "1")


@pytest.mark.net
@pytest.mark.timeout(320)
def test_so_do_others() -> None:
    ends_with_the_same_bits(COMMON, 2, "1")


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("optimizers", "workers", "memory"), [(OTHERS, 2, "0"), (COMMON, 3, "0"), (OTHERS, 3, "1")]
)
def test_so_do_others_and_on_three_workers(optimizers: str, workers: int, memory: str) -> None:
    ends_with_the_same_bits(optimizers, workers, memory)


def ends_with_the_same_bits(optimizers: str, workers: int, memory: str) -> None:
    wanted = plain(optimizers, workers, memory)
    with ran(optimizers, "--shard-optimizer", workers=workers, memory=memory) as (found, shown, _):
        assert shown.count(SHARED) == len(optimizers.split()), shown
        check(found, wanted)
        for name in optimizers.split():
            whole = wanted[0][name]["held"]
            held = [worker[name]["held"] for worker in found]
            assert max(held) < 0.6 * whole, (name, held, whole)
            left_whole = sum(held) - whole  # tables of what changes rows alone
            assert (left_whole > 0) == (name == "adagrad"), (name, held, whole)
            assert found[0][name]["weights"] == found[1][name]["weights"]


@pytest.mark.timeout(240)
def test_as_many_bytes_travel_as_without_it() -> None:
    with ran("adam", "--shard-optimizer", memory="0", TEST_EPOCHS="8") as (found, _, _):
        pass
    with ran("adam", memory="0", TEST_EPOCHS="8") as (wanted, _, _):
        pass
    for mine, theirs in zip(found, wanted, strict=True):
        # Beside it the chief asks for the state, once for a snapshot and at the end.
        assert mine["adam"]["sent"] < 1.1 * theirs["adam"]["sent"]
    check(found, wanted)


# The chief in a step, a worker in the next round, both; a worker before its first snapshot.
KILLS = [
    pytest.param("0:0:0:0:3 1:1:0:1:2", id="one after the other"),
    pytest.param("0:1:0:0:0 1:0:0:1:4 1:1:0:1:4", id="at once", marks=pytest.mark.net),
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize("memory", ["0", pytest.param("1", marks=pytest.mark.thorough)])
def test_a_dead_workers_part_is_not_lost(kills: str, memory: str) -> None:
    options = ("--shard-optimizer", "--snapshot-every", "2")
    with ran("averaged", *options, memory=memory, KILLS=kills, TEST_EPOCHS="3") as (
        found,
        shown,
        _,
    ):
        assert "2 restarts" in shown, shown
    with ran("averaged", memory=memory, TEST_EPOCHS="3") as (wanted, _, _):
        pass
    check(found, wanted)


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kills", ["0:2:0:1:2", "0:1:0:0:4 1:0:0:2:1", "0:0:0:1:3 0:1:0:1:3"])
def test_of_three_workers_some_die(kills: str) -> None:
    options = ("--shard-optimizer", "--snapshot-every", "3")
    with ran("momentum", *options, workers=3, KILLS=kills, TEST_EPOCHS="3") as (found, _, _):
        pass
    with ran("momentum", workers=3, TEST_EPOCHS="3") as (wanted, _, _):
        pass
    check(found, wanted)


@pytest.mark.net
@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["", pytest.param("together", marks=pytest.mark.thorough)])
def test_it_is_read_saved_and_loaded_as_always(way: str) -> None:
    ways = f"looks also {way}"
    with ran("adam averaged", "--shard-optimizer", WAYS=ways) as (found, shown, _):
        assert shown.count(SHARED) == 4, shown  # and those that are loaded
    check(found, plain("adam averaged", ways=ways))


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_it_is_the_same_eagerly() -> None:
    with ran("accumulated", "--shard-optimizer", WAYS="eagerly") as (found, shown, _):
        assert SHARED in shown
    check(found, plain("accumulated", ways="eagerly"))


@pytest.mark.net
@pytest.mark.timeout(240)
def test_checkpoints_look_as_always_and_fit_a_job_without_it() -> None:
    every = ("--checkpoint-every", "3", "--keep", "9")
    with ran("adam", *every) as (wanted, _, folder):
        theirs = {tuple(one.meta["place"]): one for one in stored(folder)}
    with ran("adam", "--shard-optimizer", *every) as (found, _, folder):
        mine = {tuple(one.meta["place"]): one for one in stored(folder)}
        assert mine.keys() & theirs.keys()
        for place in mine.keys() & theirs.keys():
            assert mine[place].arrays.keys() == theirs[place].arrays.keys()
            for name, array in mine[place].arrays.items():
                np.testing.assert_array_equal(array, theirs[place].arrays[name], name)
    check(found, wanted)


@pytest.mark.net
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("first", "then"), [((), ("--shard-optimizer",)), (("--shard-optimizer",), ())]
)
def test_a_job_goes_on_with_it_or_without_it(first: tuple[str, ...], then: tuple[str, ...]) -> None:
    wanted = plain("averaged")
    with tempfile.TemporaryDirectory() as folder:
        variables = {"OPTIMIZERS": "averaged", "TEST_FOLDER": folder, "TFRUN_SHARED_MEMORY": "1"}
        every = ("--checkpoint-every", "4", "--max-restarts", "0")
        dies = {**variables, "KILLS": "0:1:0:1:3"}
        shown_by(command(folder, 2, *first, *every), dies, timeout=100, exit_code=137)
        shown = shown_by(command(folder, 2, *then), variables, timeout=100)
        assert "continuing from the last checkpoint" in shown
        found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(2)]
    check(found, wanted)


def stored(folder: Path) -> list[Any]:
    """The checkpoints of a run."""
    found = Store(folder / "run/checkpoints", read_only=True).list()
    return [load(path, manifest, str(path)) for path, manifest in found]


@pytest.mark.net
@pytest.mark.timeout(240)
def test_a_preempted_job_saves_all_parts() -> None:
    wanted = plain("averaged")
    with tempfile.TemporaryDirectory() as folder:
        variables = {"OPTIMIZERS": "averaged", "TEST_FOLDER": folder, "TFRUN_SHARED_MEMORY": "1"}
        job = subprocess.Popen(
            command(folder, 2, "--shard-optimizer"),
            env=environment({**variables, "WAYS": "slowly"}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        log = Path(folder, "run/events.jsonl")
        wait_until(lambda: log.exists() and '"snapshot"' in log.read_text(), "steps are made", 60)
        job.send_signal(signal.SIGTERM)
        shown, _ = job.communicate(timeout=60)
        assert job.returncode == 75, shown
        again = shown_by(command(folder, 2, "--shard-optimizer"), variables, timeout=100)
        assert "continuing from the last checkpoint" in again
        found = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(2)]
    check(found, wanted)


@pytest.mark.net
@pytest.mark.timeout(120)
def test_what_cannot_be_shared_stays_whole_and_says_why() -> None:
    with ran("no_state own", "--shard-optimizer") as (found, shown, _):
        assert "has no state for its weights" in shown
        assert "what Clipped does to a weight may need others" in shown
    check(found, plain("no_state own"))


@pytest.mark.timeout(120)
def test_a_step_that_reads_a_slot_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shown = shown_by(
            command(folder, 2, "--shard-optimizer"),
            {"OPTIMIZERS": "adam", "WAYS": "reads", "TEST_FOLDER": folder},
            timeout=60,
            exit_code=1,
        )
    assert "TFRUN-519" in shown
