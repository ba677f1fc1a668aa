"""Numbers over time: as exact as there is room, and never more than that."""

from __future__ import annotations

import itertools

from tfrun.observe.time_series import Series, number


def test_few_points_are_kept_as_they_are():
    series = Series(8)
    for step in range(5):
        series.add(100.0 + step, {"loss": step / 2, "unknown": None})
    times, columns = series.columns()
    assert times == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert columns == {"loss": [0.0, 0.5, 1.0, 1.5, 2.0], "unknown": [None] * 5}


def test_many_points_become_means_of_equally_many():
    series = Series(8)
    for step in range(32):
        series.add(float(step), {"step": float(step)})
    times, columns = series.columns()
    # 32 points in at most 8 buckets, all equally wide: each holds its four points' mean.
    widths = {later - earlier for earlier, later in itertools.pairwise(times)}
    assert len(widths) == 1
    width = int(widths.pop())
    assert columns["step"] == [last - (width - 1) / 2 for last in times]
    assert times[-1] == 31.0


def test_a_hundred_thousand_steps_take_no_more_room_than_their_capacity():
    series = Series(64)
    for step in range(100_000):
        series.add(float(step), {"loss": 1.0, f"odd {step % 3}": 2.0})
    times, columns = series.columns()
    assert 16 <= len(times) <= 65
    assert all(len(column) == len(times) for column in columns.values())
    assert columns["loss"] == [1.0] * len(times)


def test_a_name_that_comes_late_was_unknown_before():
    series = Series(8)
    series.add(1.0, {"loss": 1.0})
    series.add(2.0, {"loss": 2.0, "val_loss": 3.0})
    series.add(3.0, {})
    assert series.columns()[1] == {"loss": [1.0, 2.0, None], "val_loss": [None, 3.0, None]}


def test_only_finite_numbers_are_numbers():
    assert [number(x) for x in (1, 2.5, True, "3", None, float("nan"), float("inf"), [1])] == [
        *(1.0, 2.5),
        *[None] * 6,
    ]
