"""When the next snapshot is due."""

from __future__ import annotations

from tfrun.state.snapshots_due import SHARE, Interval, interval


def test_by_steps() -> None:
    every = Interval(steps=3)
    assert [every.due() for _ in range(3)] == [False, False, True]
    every.done(1.0)
    assert not every.due()


def test_never() -> None:
    every = interval("0")
    assert not any(every.due() for _ in range(1000))


def test_by_seconds() -> None:
    now = [0.0]
    every = Interval(seconds=5.0, clock=lambda: now[0])
    assert not every.due()
    now[0] = 5.0
    assert every.due()
    every.done(4.0)
    now[0] = 9.0
    assert not every.due()


def test_by_cost_stays_under_one_percent() -> None:
    now = [0.0]
    every = Interval(clock=lambda: now[0])
    spent = 0.0
    for _ in range(100_000):
        now[0] += 0.01
        if every.due():
            spent += 0.05
            now[0] += 0.05
            every.done(0.05)
    assert 0 < spent / now[0] <= SHARE < 0.01
