"""Stores numbers over time in bounded memory: the longer it goes, the coarser they get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CAPACITY = 512
MAX_NAMES = 4096
DIGITS = 5
NO_NUMBERS = ("NaN", "Infinity", "-Infinity")  # as which a loss that is none travels

Values = Mapping[str, float | None]


class Series:
    """Parallel columns over time; a bucket is the mean of as many points as were added for it.

    When all buckets are used, each two neighbours become one, and later buckets take twice as
    many points, so that all stay equally wide.

    Args:
      capacity: buckets at most, an even number.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity, self._width = capacity, 1
        self._times: list[float] = []
        self._columns: dict[str, list[float | None]] = {}
        self._open: list[tuple[float, Values]] = []

    def __len__(self) -> int:
        return len(self._times) + bool(self._open)

    def add(self, time: float, values: Values) -> None:
        """Adds a point.

        Args:
          time: seconds since the epoch, not before the last one's.
          values: by name; what is missing, or None, is unknown.
        """
        self._open.append((time, values))
        if len(self._open) >= self._width:
            self._close()

    def columns(self) -> tuple[list[float], dict[str, list[float | None]]]:
        """Returns the times at which the buckets end, and for each name as many values."""
        times = list(self._times)
        columns = {name: list(values) for name, values in self._columns.items()}
        if self._open:
            time, values = _mean(self._open)
            times.append(time)
            for name in {**columns, **values}:
                columns.setdefault(name, [None] * (len(times) - 1)).append(values.get(name))
        return times, columns

    def _close(self) -> None:
        time, values = _mean(self._open)
        self._open = []
        for name in values:
            if name not in self._columns and len(self._columns) < MAX_NAMES:
                self._columns[name] = [None] * len(self._times)
        self._times.append(time)
        for name, column in self._columns.items():
            column.append(values.get(name))
        if len(self._times) >= self._capacity:
            self._halve()

    def _halve(self) -> None:
        self._width *= 2
        self._times = self._times[1::2]
        for name, column in self._columns.items():
            pairs = zip(column[::2], column[1::2], strict=True)
            self._columns[name] = [mean(pair) for pair in pairs]


def mean(values: Iterable[float | None]) -> float | None:
    """Returns the mean of those that are known, None when none is."""
    known = [value for value in values if value is not None]
    return rounded(sum(known) / len(known)) if known else None


def rounded(value: float) -> float:
    """Returns a number with so few digits that it travels cheaply."""
    return float(f"{value:.{DIGITS}g}")


def number(value: Any) -> float | None:
    """Returns a value of a report as a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < float("inf") else None


def metric(value: Any) -> float | None:
    """Returns a loss or metric, also one that is no number and travels as a word; else None."""
    if value in NO_NUMBERS:
        return float(value)
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_one else None


def _mean(points: list[tuple[float, Values]]) -> tuple[float, dict[str, float | None]]:
    names = {name: None for _, values in points for name in values}
    found = {name: mean(values.get(name) for _, values in points) for name in names}
    return points[-1][0], found
