"""Every option of `tfrun SCRIPT` has its effect, alone and beside every other one, or is refused.

Jobs come from a covering array: any two values of any two options (and each way to train) come
together in one of them. CI runs a share of them, another one every day, and the single options that
the last commits touch (tests/touched.py says how that is known); `make test-options` runs all.
"""

from __future__ import annotations

import ast
import functools
import json
import math
import os
import re
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allpairspy import AllPairs
from click import Option
from keras import tree
from table import ELSEWHERE, OPTIONS, PROVED, STEPS, Job, doubted, refused

from conftest import JOB_SECONDS, Jobs
from shares import DAY, in_share
from tfrun.cli.main import run as command
from touched import by_this_change

SCRIPT = Path(__file__).parent / "scripts" / "trains.py"
MODES = ("fit", "loop", "own loop", "servers", "evaluator")
# Of a recommender on servers, and of `fit` with somebody aside who evaluates each checkpoint.
OF_MODE = {"servers": ["--ps", "1"], "evaluator": ["--evaluator"]}
DECLARED = {option.name: option for option in command.params if isinstance(option, Option)}
FEW = 4  # touched by a change: these are tested in each mode, more of them in one mode each
CHOSEN = {name: values for name, (values, _) in OPTIONS.items() if name != "run_dir"}


def words(mode: str, chosen: Mapping[str, str], folder: Path) -> list[str]:
    """The command line."""
    said = ["--run-dir", str(folder / "run"), *OF_MODE.get(mode, [])]
    for name, value in chosen.items():
        option = DECLARED[name]
        path = {"checkpoint_dir", "tensorboard"} & {name}
        said += [option.secondary_opts[0] if value == "no" else option.opts[-1]]
        said += [] if option.is_flag else [str(folder / value) if path else value]
    return [*said, "trains" if "module" in chosen else str(SCRIPT)]


def train(jobs: Jobs, mode: str, chosen: Mapping[str, str], folder: Path, **env: str) -> Job:
    out = folder / "out.json"
    done = jobs.run(
        *words(mode, chosen, folder),
        env={"MODE": mode, "TEST_OUT": str(out), "PYTHONPATH": str(SCRIPT.parent), **QUIET, **env},
        timeout=2 * JOB_SECONDS,
    )
    expected = 3 if doubted(mode, chosen) and "strict" in chosen else 0
    assert done.returncode == expected, done.stdout + done.stderr
    found = json.loads(out.read_text()) if expected == 0 else {}
    return Job(chosen, mode, found, done.stdout, done.stderr, folder)


QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


@functools.cache
def undisturbed() -> Mapping[str, Any]:
    """What one worker computes, without any option."""
    with tempfile.TemporaryDirectory() as name:
        jobs = Jobs(Path(name), "options")
        return train(jobs, "fit", {}, Path(name)).found


def check(job: Job) -> None:
    """The numbers, and that each option has had its effect."""
    if doubted(job.mode, job.chosen):
        assert "TFRUN-514" in job.err
        if not job.found:
            return  # ended by --strict
    assert job.found["iterations"] == STEPS
    assert all(math.isfinite(loss) for loss in job.found["losses"])
    if job.mode == "evaluator":
        steps = re.findall(r"tfrun: evaluator 0: step (\d+): loss \d", job.err)
        assert steps and steps[-1] == str(STEPS), job.err
    if job.mode != "servers":  # there gradients come as they come
        rough = "compress" in job.chosen
        for mine, theirs in zip(
            tree.flatten(job.found["weights"]),
            tree.flatten(undisturbed()["weights"]),
            strict=True,
        ):
            np.testing.assert_allclose(mine, theirs, **({"atol": 0.02} if rough else SAME))
    for name, value in job.chosen.items():
        if applies(job, name):
            assert OPTIONS[name][1](job, value), f"--{name} {value} had no effect"


SAME = {"rtol": 1e-9, "atol": 1e-10}
ABOUT_TRAININGS = {
    "checkpoint_dir",
    "checkpoint_every",
    "fresh",
    "keep",
    "snapshot_every",
    "sync_check",
}


def applies(job: Job, name: str) -> bool:
    """Whether an effect is to be seen: what a warning says is not is told in `check`."""
    if job.mode == "own loop":
        about = {*ABOUT_TRAININGS, "shard_optimizer", "steps_per_execution"}
        return name not in {*about, "ledger", "tensorboard"}
    if job.mode == "loop":
        return name not in {"steps_per_execution", "tensorboard"}
    return True


def test_every_option_is_in_the_table() -> None:
    assert set(OPTIONS) | set(ELSEWHERE) == set(DECLARED)
    assert not set(OPTIONS) & set(ELSEWHERE)


@pytest.mark.parametrize("name", PROVED)
def test_what_shows_elsewhere_is_shown_there(name: str) -> None:
    """By a test that there is, that runs without a request, and that uses the option."""
    file, _, test = PROVED[name].partition("::")
    text = (SCRIPT.parents[2] / file).read_text()
    (found,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.name == test
    )
    assert not [mark for mark in found.decorator_list if "thorough" in ast.unparse(mark)]
    names = {*DECLARED[name].opts, *DECLARED[name].secondary_opts}
    assert any(f'"{option}"' in text for option in names), names


def means_something(mode: str, chosen: Mapping[str, str]) -> bool:
    """Whether the mode does not state an option already, and no option is for other modes."""
    if "replicas" in chosen and "loop" in mode and chosen.get("workers") == "1":
        return False  # a loop of the script's own has one on each worker
    return not (mode == "evaluator" and "evaluator" in chosen)


def singles() -> list[tuple[str, str, str]]:
    every = [(mode, name, value) for mode in MODES for name in CHOSEN for value in CHOSEN[name]]
    return [(mode, name, value) for mode, name, value in every if means_something(mode, {name: ""})]


@pytest.mark.parametrize("workers", ["1", "2", "3"])
@pytest.mark.parametrize("mode", MODES)
def test_without_options(mode: str, workers: str, jobs: Jobs, tmp_path: Path) -> None:
    if not in_share(f"{mode} {workers}", of=6):
        pytest.skip("another day's: make test-options runs all")
    check(train(jobs, mode, {"workers": workers}, tmp_path))


def of_two(chosen: Mapping[str, str]) -> dict[str, str]:
    """Two workers, if nothing else is said."""
    return {"workers": "2", **chosen}


@functools.cache
def touched() -> frozenset[str]:
    """The options that the last commits and the working tree touch."""
    return frozenset(by_this_change(CHOSEN))


def of_change(mode: str, name: str, value: str, touched: Collection[str], day: int = DAY) -> bool:
    """Whether a value of an option that a change touches is tested in this mode, any day."""
    if name not in touched or len(touched) <= FEW:
        return name in touched
    possible = [
        one
        for one in MODES
        if means_something(one, {name: value}) and not refused(one, of_two({name: value}))
    ]
    return bool(possible) and mode == possible[(day + sum(map(ord, name + value))) % len(possible)]


def test_what_a_change_touches_is_tested_whatever_the_day_is() -> None:
    few = {"keep", "seed"}
    for mode, name, value in singles():
        assert of_change(mode, name, value, few) == (name in few)
    every = {(n, v) for m, n, v in singles() if not refused(m, of_two({n: v}))}
    for day in range(len(MODES)):
        tested = [(n, v) for m, n, v in singles() if of_change(m, n, v, {*CHOSEN}, day)]
        assert len(tested) == len(every) and set(tested) == every


@pytest.mark.parametrize(("mode", "name", "value"), singles())
def test_alone(mode: str, name: str, value: str, jobs: Jobs, tmp_path: Path) -> None:
    chosen = of_two({name: value})
    if refused(mode, chosen):
        done = jobs.run(*words(mode, chosen, tmp_path), env=QUIET)
        assert done.returncode == 2 and "TFRUN-107" in done.stderr, done.stderr
        assert not list(tmp_path.iterdir())
        return
    if not (in_share(f"{mode} {name} {value}", of=16) or of_change(mode, name, value, touched())):
        pytest.skip("another day's: make test-options runs all")
    check(train(jobs, mode, chosen, tmp_path))


def pairs() -> list[dict[str, str]]:
    """Jobs in which any two values come together that are not refused."""
    names = ["mode", *CHOSEN]
    values = [list(MODES), *(["", *CHOSEN[name]] for name in CHOSEN)]
    values[1].remove("")  # always a number of workers

    def allowed(row: list[str]) -> bool:
        said = dict(zip(names, row, strict=False))
        mode = said.pop("mode")
        chosen = {name: value for name, value in said.items() if value}
        return means_something(mode, chosen) and not refused(mode, chosen)

    return [dict(zip(names, row, strict=True)) for row in AllPairs(values, filter_func=allowed)]


@pytest.mark.parametrize("number", range(len(pairs())))
def test_beside_others(number: int, jobs: Jobs, tmp_path: Path) -> None:
    if not in_share(f"pairs {number}", of=16):
        pytest.skip("another day's: make test-options runs all")
    chosen = {name: value for name, value in pairs()[number].items() if value}
    mode = chosen.pop("mode")
    check(train(jobs, mode, chosen, tmp_path))


def test_the_machines_of_a_job_without_hosts(jobs: Jobs, tmp_path: Path) -> None:
    about_hosts = {"--remote-python": "python3", "--remote-dir": "/", "--env": "HOME", "--sync": ""}
    about_hosts |= {"--tls-cert": os.devnull, "--tls-key": os.devnull}
    for option, value in about_hosts.items():
        done = jobs.run(option, *([value] if value else []), SCRIPT)
        assert done.returncode == 2 and "TFRUN-107" in done.stderr, (option, done.stderr)
