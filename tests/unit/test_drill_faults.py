"""Which faults there are, and whom they hit."""

from __future__ import annotations

import random

import pytest

from tfrun.job.errors import UsageError
from tfrun.tools.drill.faults import DEFAULT, FAULTS, choose, parse_faults

TASKS = [f"worker:{rank}" for rank in (10, 2, 0, 1)]


def test_without_a_list_those_that_the_workers_allow() -> None:
    assert parse_faults(None, 2) == DEFAULT
    assert parse_faults(None, 1) == ("chief", "preempt")
    assert parse_faults(None, 2, hosts=2) == ("cut", "preempt")


def test_a_list_is_taken_in_its_order_and_once() -> None:
    assert parse_faults("stop, kill,stop", 2) == ("stop", "kill")


@pytest.mark.parametrize(
    ("text", "workers", "code"),
    [
        ("kill,burn", 2, "TFRUN-105"),
        ("", 2, "TFRUN-105"),
        ("kill,", 2, "TFRUN-105"),
        ("chief,two", 1, "TFRUN-107"),
    ],
)
def test_what_cannot_be_had(text: str, workers: int, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_faults(text, workers)
    assert caught.value.code == code


def test_who_is_elsewhere_cannot_be_signalled() -> None:
    assert parse_faults("cut,disk", 2, hosts=2) == ("cut", "disk")
    with pytest.raises(UsageError) as caught:
        parse_faults("cut,kill", 2, hosts=2)
    assert caught.value.code == "TFRUN-107" and "preempt, disk, cut" in str(caught.value)


@pytest.mark.parametrize("name", FAULTS)
def test_the_same_seed_chooses_the_same(name: str) -> None:
    def chosen(seed: int) -> tuple[str, ...]:
        return choose(name, TASKS, random.Random(seed))

    assert [chosen(seed) for seed in range(20)] == [chosen(seed) for seed in range(20)]
    assert all(set(chosen(seed)) <= set(TASKS) for seed in range(20))


def test_who_is_hit() -> None:
    chances = [random.Random(seed) for seed in range(50)]
    assert {choose("chief", TASKS, chance) for chance in chances} == {("worker:0",)}
    killed = {choose("kill", TASKS, chance) for chance in chances}
    assert killed == {("worker:1",), ("worker:2",), ("worker:10",)}
    assert all(len(set(choose("two", TASKS, chance))) == 2 for chance in chances)
    assert choose("all", TASKS, chances[0]) == ("worker:0", "worker:1", "worker:2", "worker:10")
    assert {choose("random", TASKS, chance) for chance in chances} == {(t,) for t in TASKS}


def test_who_is_hit_when_few_are_left() -> None:
    for name in FAULTS:
        assert choose(name, ["worker:3"], random.Random(0)) == ("worker:3",)
