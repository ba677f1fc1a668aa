"""Machines that join by hand: which agent one becomes, and what the plan makes of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tfrun.cluster.tasks import Task
from tfrun.control.membership import with_site
from tfrun.control.placement import Plan, Site, make_plan
from tfrun.job.errors import UsageError
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.launcher.join import token_file
from tfrun.launcher.join.enrolment import Machine, choose, is_loopback

A, B = (Machine(identity=name, slots=1) for name in "AB")


def chosen(name: str, machine: Machine, known: dict[str, Machine], *here: str) -> str:
    agent, found = choose(name, machine, known, frozenset(here))
    assert found.identity == machine.identity
    return f"{agent} {found.attempt}"


def test_who_a_machine_is() -> None:
    assert chosen("n", A, {}) == "n 0"
    assert chosen("n", A, {"n": A}) == "n 1"
    assert chosen("n", A, {"n": A}, "n") == "n 1"  # its connection broke unseen
    assert chosen("n", B, {"n": A}) == "n 1"  # started anew
    assert chosen("n", B, {"n": A}, "n") == "n-2 0"  # another one of that name
    assert chosen("n", B, {"n": A, "n-2": B}, "n") == "n-2 1"
    assert chosen("n", Machine(identity="C", slots=2), {"n": A}) == "n-2 0"  # more slots


def spec_of(low: int, high: int) -> JobSpec:
    workers = WorkerRange(low=low, high=high)
    return JobSpec(program=Program(target="t.py"), workers=workers, run_dir="/tmp/run")


def hosts_of(plan: Plan) -> list[str]:
    tasks: list[Task] = list(plan.tasks.values())
    return [plan.sites[task.host_index].agent for task in tasks]


def test_a_machine_takes_the_places_of_as_many_workers_as_it_has_slots() -> None:
    spec = spec_of(4, 4)
    places = {f"machine {i}" for i in range(1, 5)}
    plan = make_plan(spec, [Site(agent=p, host="", slots=1) for p in sorted(places)])
    plan = with_site(spec, plan, Site(agent="a", host="a", slots=2), places)
    assert hosts_of(plan) == ["a", "a", "machine 1", "machine 2"]
    plan = with_site(spec, plan, Site(agent="b", host="b", slots=3), places)
    assert hosts_of(plan) == ["a", "a", "b", "b"]
    plan = with_site(spec, plan, Site(agent="c", host="c", slots=1), places)
    assert hosts_of(plan) == ["a", "a", "b", "b"]  # stands by
    assert [site.agent for site in plan.sites] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        *(("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False)),
        *(("::ffff:10.0.0.1", False), ("", False), ("localhost", False)),
    ],
)
def test_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_a_token_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    old = os.umask(0)
    try:
        made = token_file.read_or_make(path)
    finally:
        os.umask(old)
    assert len(made) >= 32 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token_file.read_or_make(path) == token_file.read(path) == made


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (b"x" * 40, 0o644, "can be read by others .* Run chmod 600"),
        (b"x" * 40, 0o640, "can be read by others"),
        (b"short", 0o600, "less than 16 characters"),
        (b"", 0o600, "holds no token"),
        (b"two words which are long", 0o600, "holds no token"),
        (b"\xff" * 40, 0o600, "holds no token"),
        (b"x" * 5000, 0o600, "holds no token"),
        (None, 0, "cannot be read: No such file"),
    ],
)
def test_a_file_that_holds_no_secret(
    tmp_path: Path, content: bytes | None, mode: int, says: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(UsageError, match=says) as caught:
        token_file.read(path)
    assert caught.value.code == "TFRUN-105"
