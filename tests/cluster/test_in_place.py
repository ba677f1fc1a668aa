"""Workers go on in their processes when another one dies, and no bit changes."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from pathlib import Path

import pytest

from conftest import Jobs

SCRIPTS = Path(__file__).parent / "scripts"
SCRIPT = SCRIPTS / "in_place.py"
OPTIONS = ("--threads-per-worker", 1, "--run-dir", "run")
SECONDS = 300


def trained(jobs, workers: int, victim: int, step: int, *options: object, at: str = "ends"):
    """The bits, the events, and how often `fit` has begun on the worker that is the last chief."""
    given = ("-n", workers, *OPTIONS, *options)
    job = jobs.run(*given, SCRIPT, victim, step, at, timeout=SECONDS)
    assert job.returncode == 0, job.stderr[-3000:]
    (bits,) = re.findall(r"BITS (.*)", job.stdout)
    (begun,) = re.findall(r"BEGUN (.*)", job.stdout)
    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    return bits, [json.loads(line) for line in lines], int(begun)


@functools.cache
def undisturbed(*options: object) -> str:
    """The bits of two workers, on which with replicas the number of workers has no influence."""
    with tempfile.TemporaryDirectory() as folder:
        return trained(Jobs(Path(folder), "undisturbed"), 2, -1, 0, *options)[0]


def of(events: list[dict], kind: str) -> list[dict]:
    return [event for event in events if event["event"] == kind]


def check(jobs, workers: int, victim: int, step: int, *replicas: object, at: str = "ends") -> None:
    wanted = undisturbed(*replicas)
    options = (*replicas, "--in-place", "--fresh", "--ledger")  # its script has a place to ask for
    bits, events, begun = trained(jobs, workers, victim, step, *options, at=at)
    assert bits == wanted
    # At the end of an epoch others may be further.
    assert begun == 1 or (step % 4 == 0 and at == "ends")
    (recovered,), (grown,) = of(events, "recovered"), of(events, "grown")
    assert recovered["in_place"] and grown["in_place"] and not recovered["lost_steps"]
    assert [event["state"] for event in of(events, "successor")] == ["started", "ready", "taken"]
    ledger = jobs.run("ledger", "run")
    assert "every sample exactly once" in ledger.stdout, ledger.stdout + ledger.stderr


@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize(
    ("victim", "step", "replicas"),
    [
        pytest.param(1, 6, ("--replicas", 4), id="the second of two, in an epoch"),
        pytest.param(0, 8, (), id="the chief, where validation comes"),
    ],
)
def test_a_death_costs_no_process(jobs, victim, step, replicas):
    check(jobs, 2, victim, step, *replicas)


@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize(("step", "at"), [(1, "ends"), (4, "begins")])
def test_one_of_three_dies_after_the_first_step_and_in_an_epochs_first(jobs, step, at):
    check(jobs, 3, 1, step, "--replicas", 4, at=at)


@pytest.mark.timeout(4 * SECONDS)
def test_metrics_that_count_after_the_update_lack_nothing(jobs, tmp_path):
    """As in Keras's guide. A worker dies in an epoch, and a successor comes in another one."""
    (tmp_path / "whole").mkdir()
    wanted, _, _ = trained(Jobs(tmp_path / "whole", "whole"), 2, -1, 0, at="own")
    bits, events, _ = trained(jobs, 2, 1, 6, "--in-place", "--fresh", at="own")
    assert bits == wanted
    (recovered,), (grown,) = of(events, "recovered"), of(events, "grown")
    assert recovered["in_place"] and grown["in_place"]


@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize("logs", ["local", "global"])
def test_a_successor_that_comes_after_an_epochs_last_step_has_its_logs(jobs, tmp_path, logs):
    script = SCRIPTS / "in_place_last_step.py"

    def bits(one: Jobs, *options: object) -> str:
        job = one.run("-n", 2, *OPTIONS, "--in-place", script, *options, logs, timeout=SECONDS)
        assert job.returncode == 0, job.stderr[-3000:]
        return re.findall(r"BITS (.*)", job.stdout)[0]

    (tmp_path / "whole").mkdir()
    assert bits(jobs, "dies") == bits(Jobs(tmp_path / "whole", "whole"), "lives")
    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert of(events, "recovered")[0]["in_place"] and of(events, "grown")[0]["in_place"]


@pytest.mark.timeout(4 * SECONDS)
def test_logs_that_lack_a_dead_workers_part_are_told_of(jobs, tmp_path):
    """Those of the chief alone were the epoch's, without a word."""
    script = SCRIPTS / "in_place_last_step.py"

    def trained(one: Jobs, when: str) -> tuple[str, list[str], str]:
        given = ("-n", 3, *OPTIONS, "--in-place", script, when, "local")
        job = one.run(*given, timeout=SECONDS)
        assert job.returncode == 0, job.stderr[-3000:]
        (bits,) = re.findall(r"BITS (\w+)", job.stdout)
        logs = [path.read_text() for path in (one.directory / "run").glob("logs of *")]
        return bits, logs, job.stderr

    (tmp_path / "whole").mkdir()
    bits, logs, said = trained(jobs, "ends")
    wanted, undisturbed, nothing = trained(Jobs(tmp_path / "whole", "whole"), "lives")
    assert bits == wanted
    assert (len(logs), len(undisturbed)) == (2, 3)
    assert len(set(logs)) == len(set(undisturbed)) == 1 and set(logs) != set(undisturbed)
    assert said.count("the mean over 2 of 3 replicas") == 1 and "the mean over" not in nothing


@pytest.mark.timeout(4 * SECONDS)
def test_a_successor_sums_as_those_do_whom_it_joins(jobs, tmp_path):
    """It is alone while it traces; the others have traced sums that begin early, over TCP."""
    (tmp_path / "whole").mkdir()
    wanted, _, _ = trained(Jobs(tmp_path / "whole", "whole"), 2, -1, 0, at="large")
    jobs.environment["TFRUN_SHARED_MEMORY"] = "0"
    bits, events, _ = trained(jobs, 2, 1, 6, "--in-place", "--fresh", at="large")
    assert bits == wanted
    (recovered,), (grown,) = of(events, "recovered"), of(events, "grown")
    assert recovered["in_place"] and grown["in_place"]
    told = [e["report"] for e in of(events, "worker_report") if e["report"]["kind"] == "can_stay"]
    assert {one["overlaps"] for one in told} == {True}


@pytest.mark.timeout(4 * SECONDS)
def test_a_spare_that_is_ready_takes_the_place(jobs):
    wanted = undisturbed()
    bits, events, _ = trained(jobs, 2, 1, 60, "--in-place", "--spares", 1, "--fresh")
    assert bits == wanted
    assert of(events, "recovered")[0]["in_place"]
    states = [event["state"] for event in of(events, "successor")]
    assert states[:3] == ["started", "ready", "taken"]


@pytest.mark.timeout(4 * SECONDS)
def test_any_data_and_what_is_no_training(jobs):
    """A worker dies in three trainings, between two calls, in an evaluation and a prediction."""

    def bits(*options: object) -> str:
        given = ("--replicas", 8, "--max-restarts", 9, *OPTIONS, "--fresh", *options)
        job = jobs.run(*given, timeout=SECONDS)
        assert job.returncode == 0, job.stderr[-3000:]
        return re.findall(r"BITS (.*)", job.stdout)[0]

    script = SCRIPTS / "in_place_data.py"
    wanted = bits("-n", 2, script, "lives")
    assert bits("-n", 7, "--in-place", script, "dies") == wanted
    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    ends = [event for event in of(events, "worker_exited") if event["code"] == -9]
    rounds = [event["number"] for event in of(events, "round") if event["state"] == "preparing"]
    # No process but successors has begun, in either job.
    assert len(ends) == 6 and rounds == [0, 0], (ends, rounds)


def cut(jobs: Jobs, victim: int, sums: bool, *options: object) -> tuple[str, str]:
    """The bits, and how often each layer of interest has been computed."""
    given = ("-n", 2, "--replicas", 2, "--in-place", *OPTIONS, *options)
    job = jobs.run(*given, SCRIPTS / "in_place_cut.py", victim, sums, timeout=SECONDS)
    assert job.returncode == 0, job.stderr[-3000:]
    (bits,), (found,) = (re.findall(rf"{name} (.*)", job.stdout) for name in ("BITS", "MADE"))
    return bits, found


@functools.cache
def whole(sums: bool) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        return cut(Jobs(Path(folder), "whole"), -1, sums)


@pytest.mark.timeout(4 * SECONDS)
@pytest.mark.parametrize(
    ("victim", "sums", "made"),
    [
        # What it has computed of the step counts, and only the other one's is computed besides.
        (1, False, "2 2"),
        (0, False, "2 2"),
        # Not to its end; and then both of them.
        (1, True, "3 2"),
    ],
)
def test_a_step_in_which_another_one_dies_is_computed_once(jobs, victim, sums, made):
    wanted, alone = whole(sums)
    assert alone == "1 1"
    # In the midst of the forward pass: statistics and seeds of some layers had changed.
    assert cut(jobs, victim, sums, "--fresh") == (wanted, made)
    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    (recovered,) = of([json.loads(line) for line in lines], "recovered")
    assert recovered["in_place"] and not recovered["lost_steps"]


# Trainings, one after the other, of which the last one costs something where a worker may hold
# several replicas, and the reason that is told.
COSTS = {
    "overlap,sparse,seeded op": "by a TensorFlow op that holds its seed",
    "critic": "by a TensorFlow op that holds its seed",
    "makes": "makes variables that it assigns",
    "sparse,assigned": "assigns weights that an optimizer updates",
    "eager": "runs eagerly",
    "eager functions": "runs eagerly",
    "own data": "reads files of its own, or all of the data",
    "several steps": "makes several steps in one call",
    "own loop": None,  # it is in no `fit`, and tells nothing
}


@pytest.mark.parametrize("kinds", COSTS)
def test_what_staying_would_cost_is_kept_instead(jobs, kinds):
    """The job does not begin again for it, and the bits are those of workers that do not stay."""

    def bits(*options: object) -> list[str]:
        given = ("-n", 2, *OPTIONS, "--overlap", "on", "--fresh", *options)
        job = jobs.run(*given, SCRIPTS / "one_for_good.py", kinds)
        assert job.returncode == 0, job.stderr[-3000:]
        return re.findall(r"BITS (.*)", job.stdout)

    wanted = bits("--no-in-place")
    assert len(wanted) == len(kinds.split(",")) and bits() == wanted
    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    began = [e["number"] for e in of(events, "round") if e["state"] == "preparing"]
    assert set(began) == {0}
    reports = [e["report"] for e in of(events, "worker_report")]
    told = [one["why"] for one in reports if one["kind"] == "can_stay" and not one["can"]]
    assert any(COSTS[kinds] in why for why in told) if COSTS[kinds] else not told, told


def saved(jobs: Jobs, *args: object) -> tuple[str, list[dict]]:
    """What is in the files of a script that saves between its trainings, and the events."""
    script = SCRIPTS / "in_place_saves.py"
    job = jobs.run("-n", 2, "--in-place", *OPTIONS, "--fresh", script, *args, timeout=SECONDS)
    assert job.returncode == 0, job.stderr[-3000:]
    lines = (jobs.directory / "run/events.jsonl").read_text().splitlines()
    return "".join(re.findall(r"RES .*", job.stdout)), [json.loads(line) for line in lines]


@pytest.mark.net
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("where", ["first", "second"])
@pytest.mark.parametrize("rank", [0, 1])
def test_who_stays_saves_and_loads_with_who_has_joined(jobs, where, rank):
    """The new chief writes, and who has taken the place of another one waits for that."""
    wanted, _ = saved(jobs, where, -1)
    found, events = saved(jobs, where, rank)
    assert found == wanted
    assert [event["in_place"] for event in of(events, "recovered")] == [True]
    states = [event["state"] for event in of(events, "successor")]
    assert states == ["started", "ready", "taken"]


@pytest.mark.timeout(2 * SECONDS)
def test_nobody_stays_where_the_chief_has_not_written_what_comes_before(jobs):
    """The other one is in the next training when the chief dies before it saves."""
    wanted, _ = saved(jobs, "between", -1)
    for name in ("first.keras", "second.keras"):
        (jobs.directory / name).unlink()
    found, events = saved(jobs, "between", 0)
    assert found == wanted
    (recovered,) = of(events, "recovered")
    assert not recovered["in_place"] and recovered["restarts"] == 1
