"""Who is named a straggler: by its own time, at what, once."""

from __future__ import annotations

import pytest

from tfrun.job.reports import StepsMade
from tfrun.observe.step_reports import Numbers, read
from tfrun.observe.stragglers import STEPS, Suspicion, judge, sentence

USUAL = {"input": 0.002, "compute": 0.010, "communication": 0.008, "other": 0.001}


def numbers(
    steps: int = 10,
    time: float = 100.0,
    split: dict[str, float] | None = None,
    network: float | None = None,
    **parts: float,
) -> Numbers:
    split = {**USUAL, **(split or {}), **parts}
    report = StepsMade(
        **{"epoch": 0, "in_epoch": 1, "step": 1, "steps": steps, "rss": 1, "cpu": 1.0},
        seconds=steps * sum(split.values()),
        split=[steps * s for s in split.values()],
        network=None if network is None else steps * network,
        network_to="10.0.0.3",
    )
    found = read(time, report)
    assert found is not None
    return found


def judged(mine: list[Numbers], others: int = 3, theirs: Numbers | None = None) -> list:
    """The verdicts on a worker that reports these, one after the other."""
    suspicion, verdicts = Suspicion(), []
    latest = {f"worker:{i}": theirs or numbers() for i in range(1, others + 1)}
    for report in mine:
        suspicion, verdict = judge("worker:0", suspicion, {**latest, "worker:0": report})
        verdicts.append(verdict)
    return verdicts


@pytest.mark.parametrize(
    ("part", "slow_at"), [("input", "input"), ("compute", "compute"), ("other", "callbacks")]
)
def test_the_slow_one_is_named_once_with_what_it_is_slow_at(part: str, slow_at: str):
    verdicts = judged([numbers(split={part: 0.05, "communication": 0.0})] * 10)
    named = [verdict for verdict in verdicts if verdict]
    assert [(v.slow, v.slow_at) for v in named] == [(True, slow_at)]
    assert named[0].factor > 3


def test_it_is_named_once_for_each_cause_until_it_is_over():
    computes, reads, well = numbers(compute=0.05), numbers(input=0.05), numbers()
    slow = [*[computes] * 6, *[reads] * 6, *[computes] * 6, *[reads] * 6]
    named = [(v.slow, v.slow_at) for v in judged([*slow, *[well] * 6, *[reads] * 6]) if v]
    assert [v[1] for v in named if v[0]] == ["compute", "input", "input"]
    assert [v[0] for v in named] == [True, True, False, True]


def test_what_it_was_slow_at_most_is_named_not_what_it_was_slow_at_last():
    computes, reads = numbers(compute=0.05), numbers(steps=2, input=0.08)
    (verdict,) = (v for v in judged([computes, computes, reads]) if v)
    assert verdict.slow_at == "compute"


def test_those_that_wait_for_the_slow_one_are_not_slow():
    waits = numbers(communication=0.5)
    assert (waits.step_seconds or 0.0) > 0.5
    assert judged([waits] * 10) == [None] * 10


def test_a_narrow_network_is_its_own():
    """All wait for the one link; the one that sends through it is named."""
    wide = numbers(network=0.002, communication=0.3)
    verdicts = judged([numbers(network=0.29, communication=0.3)] * 5, theirs=wide)
    (verdict,) = (v for v in verdicts if v)
    assert (verdict.slow_at, verdict.network_to) == ("network", "10.0.0.3")
    assert verdict.own_seconds == pytest.approx(0.303)
    assert verdict.usual_seconds == pytest.approx(0.015)
    fields = {"own_seconds": 0.303, "usual_seconds": 0.015, "network_to": "10.0.0.3"}
    said = sentence({"task": "worker:0", "slow_at": "network", **fields})
    assert "its network to 10.0.0.3 takes the time" in said


def test_a_network_that_is_narrow_for_all_is_nobodys():
    narrow = numbers(network=0.29, communication=0.3)
    assert not any(judged([narrow] * 10, theirs=narrow))
    # Nor does it hide a worker that is slow in itself.
    slow = numbers(network=0.29, communication=0.3, compute=0.05)
    assert [v.slow_at for v in judged([slow] * 5, theirs=narrow) if v] == ["compute"]


def test_those_that_send_to_no_other_machine_are_no_measure_of_a_network():
    assert not any(judged([numbers(network=0.29, communication=0.3)] * 10))


def test_what_is_hidden_behind_computing_holds_nobody_up():
    found = numbers(network=0.5, communication=0.1)
    assert found.network_seconds == 0.1


def test_not_before_so_many_steps():
    assert not any(judged([numbers(steps=STEPS // 4, compute=0.05)] * 3))
    assert any(judged([numbers(steps=STEPS // 4, compute=0.05)] * 4))


def test_a_moment_is_no_straggler():
    slow, well = numbers(steps=15, compute=0.05), numbers(steps=15)
    assert not any(judged([slow, slow, well] * 5))


def test_less_than_half_more_is_no_straggler():
    assert not any(judged([numbers(compute=0.015)] * 10))


def test_what_is_small_in_itself_is_no_straggler():
    suspicion = Suspicion()
    latest = {"worker:1": numbers(compute=0.0005, input=0.0001, other=0.0)}
    for _ in range(10):
        mine = {**latest, "worker:0": numbers(compute=0.0015, input=0.0001, other=0.0)}
        suspicion, verdict = judge("worker:0", suspicion, mine)
        assert verdict is None


def test_it_is_told_when_it_is_over():
    slow, well = numbers(compute=0.05), numbers()
    named = [verdict.slow for verdict in judged([*[slow] * 5, *[well] * 5]) if verdict]
    assert named == [True, False]


def test_alone_nobody_is_slow():
    assert judge("worker:0", Suspicion(), {"worker:0": numbers()}) == (Suspicion(), None)


def test_one_that_has_not_been_heard_of_for_long_is_no_measure():
    old = {"worker:1": numbers(time=10.0), "worker:0": numbers(time=100.0, compute=0.05)}
    assert judge("worker:0", Suspicion(), old) == (Suspicion(), None)


def test_the_sentence_names_it():
    (verdict,) = (v for v in judged([numbers(input=0.05)] * 5) if v)
    fields = {"own_seconds": verdict.own_seconds, "usual_seconds": verdict.usual_seconds}
    assert sentence({"task": "worker:3", "slow_at": verdict.slow_at, **fields}) == (
        "worker 3 slows the others down: its input takes the time "
        "(61.0 ms of its own a step, the others 13.0)"
    )
