"""Which Python variables a loop carries from turn to turn, and have changed since it began."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfrun.state.loop_variables import LoopVariables


def steps(number: int, variables: LoopVariables) -> Iterator[int]:
    variables.runs_in(sys._getframe(1))
    yield from range(number)


def test_what_a_loop_carries_is_named_once_it_has_changed() -> None:
    variables, found = LoopVariables(), []
    best, wait, losses, total = None, 0, [], tf.constant(0.0)
    name, loss, table = "as it was", 5.0, {}
    for step in steps(4, variables):
        loss = 4.0 - step
        found.append(variables.changed())
        if best is None or loss < best:
            best = loss
        else:
            wait += 1
        if step > 1:
            losses.append(loss)
            table[name] = wait
        total += loss
    assert (best, wait, name) == (1.0, 0, "as it was") and float(total) == 10.0
    assert found == [
        [],
        ["best", "found", "total"],
        ["best", "found", "total"],
        ["best", "found", "losses", "table", "total"],
    ]


def test_the_loop_around_it_counts_as_well() -> None:
    variables, epochs, found = LoopVariables(), 0, []

    def train() -> None:
        seen = 0
        for _ in steps(2, variables):
            found.append(variables.changed())
            seen += 2

    for _ in range(2):
        train()
        epochs += 2
    assert found == [[], ["found", "seen"], ["epochs"], ["epochs", "found", "seen"]]


def test_loops_that_ask_for_the_next_step() -> None:
    variables, done, least = LoopVariables(), 0, 9.0
    while done < 3:
        done += 1
        least = min(least, 1.0 / done)
        if done == 1:
            variables.runs_in(sys._getframe())
    assert variables.changed() == ["done", "least"]
    variables.runs_in(None)
    assert variables.changed() == []


def test_objects_of_the_scripts_own_count_and_others_do_not() -> None:
    class Totals:
        number = 0

    class Open:
        __slots__ = ("value",)

    variables, totals, other = LoopVariables(), Totals(), Open()
    model: Any = tf.Module()
    for step in steps(2, variables):
        totals.number += step
        other.value = step
        model.number = step
    assert variables.changed() == ["totals"]
    assert (other.value, model.number) == (1, 1)
