"""Python code of a step that goes on from what it has left is found."""

from __future__ import annotations

import functools
import logging

import numpy as np
import pytest

from tfrun.engine import python_counts
from tfrun.engine.python_counts import of_function, tell

COUNT, TABLE, SEEN = 0, {"calls": 0}, []


def of_global() -> int:
    global COUNT
    COUNT += 1
    return COUNT


def of_table() -> int:
    TABLE["calls"] = TABLE["calls"] + 1
    return TABLE["calls"]


def of_other() -> int:
    return of_global()


def of_locals(values: np.ndarray) -> np.ndarray:
    total = 0
    for value in values:
        total += value
        values[0] += value
    return np.float32(total)


def of_log(value: float) -> float:
    SEEN.append(value)
    TABLE["newest"] = value
    return value


def of_cell() -> object:
    count = 0

    def calls() -> int:
        nonlocal count
        count += 1
        return count

    return calls


class Counts:
    def __init__(self) -> None:
        self.calls = 0

    def counted(self) -> int:
        self.calls += 1
        return self.calls

    def remembers(self, value: float) -> float:
        self.newest = value
        return value

    def through_another(self) -> int:
        return self.counted()


@pytest.mark.parametrize(
    ("function", "places"),
    [
        (of_global, ["COUNT"]),
        (of_table, ["TABLE['calls']"]),
        (of_other, ["COUNT"]),
        (of_locals, []),
        (of_log, []),
        (of_cell(), ["count"]),
        (Counts().counted, ["self.calls"]),
        (Counts().remembers, []),
        (Counts().through_another, ["self.calls"]),
        (functools.partial(of_other), ["COUNT"]),
        (lambda: of_global(), ["COUNT"]),
        (np.random.normal, []),
        (len, []),
    ],
)
def test_what_a_step_counts_in_is_found(function, places):
    assert of_function(function) == places


def test_it_is_told_once(caplog, monkeypatch):
    monkeypatch.setattr(python_counts, "_told", set())
    with caplog.at_level(logging.WARNING, logger="tfrun"):
        for _ in range(2):
            tell(of_other, " (train.py:3)")
            tell(of_log, " (train.py:4)")
    (text,) = caplog.messages
    assert "Python code (train.py:3) that counts in `COUNT`" in text
