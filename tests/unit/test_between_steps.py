"""What a script does between two steps of a loop is done again with others, and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
import tensorflow as tf

from tfrun.engine import between_steps


class GivenUp(BaseException):
    pass


class Loop:
    """A loop that counts, and that goes on from a count of nothing when it enters a round."""

    def __init__(self) -> None:
        self.came_to, self.total, self.rounds = 0, 0.0, 0
        self.does: list[str] = []
        self.may_enter = True

    def collectives(self) -> int:
        return self.came_to

    def counted(self) -> dict[Any, tf.Tensor]:
        return {0: tf.constant(self.total)}

    def enters_between(self, error: Exception) -> bool:
        if self.may_enter:
            self.rounds, self.total, self.came_to = self.rounds + 1, 0.0, 0
        return self.may_enter

    def gives_up(self, error: Exception) -> NoReturn:
        raise GivenUp from error

    def deed(self, name: str, adds: float = 0.0, fails: int = 0) -> Callable[[], str]:
        left = [fails]

        def deed() -> str:
            self.does.append(name)
            self.came_to += 1
            if left[0]:
                left[0] -= 1
                raise OSError("a peer has gone")
            self.total += adds
            return name

        return deed


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    between_steps.begin(between_steps.Deeds(loop))
    yield loop
    between_steps.end()


def test_all_that_leads_on_is_made_again_each_time(loop: Loop) -> None:
    assert between_steps.made(loop.deed("a", adds=1), leads_on=True) == "a"
    assert between_steps.made(loop.deed("told")) == "told"
    between_steps.remember(loop.deed("b"))
    assert between_steps.made(loop.deed("c", adds=2, fails=2), leads_on=True) == "c"
    assert loop.does == ["a", "told", "c", *"abc", *"abc"]
    assert (loop.rounds, loop.total) == (2, 3.0)
    assert between_steps.made(loop.deed("d", fails=1)) == "d"
    assert loop.does[-5:] == ["d", *"abc", "d"]


def test_what_a_deed_does_is_its_own(loop: Loop) -> None:
    def outer() -> str:
        assert between_steps.newest() is None
        return between_steps.made(loop.deed("inner"), leads_on=True)

    between_steps.made(outer, leads_on=True)
    between_steps.made(loop.deed("cut", fails=1))
    assert loop.does == ["inner", "cut", "inner", "cut"]


def test_who_counts_something_else_the_second_time_gives_up(loop: Loop) -> None:
    between_steps.made(loop.deed("a", adds=1), leads_on=True)
    loop.total = 0.0  # by what nobody here knows of
    with pytest.raises(GivenUp):
        between_steps.made(loop.deed("b", fails=1))


def test_nobody_goes_on_who_has_met_others_elsewhere(loop: Loop) -> None:
    between_steps.made(loop.deed("a"), leads_on=True)
    loop.came_to += 1
    with pytest.raises(OSError, match="a peer has gone"):
        between_steps.made(loop.deed("b", fails=1))
    assert loop.rounds == 0


def test_an_error_of_another_kind_is_the_scripts(loop: Loop) -> None:
    loop.may_enter = False
    with pytest.raises(OSError, match="a peer has gone"):
        between_steps.made(loop.deed("a", fails=1))


def test_sums_count_what_deeds_have_come_to_in_any_round(loop: Loop) -> None:
    deeds = between_steps.newest()
    assert deeds is not None
    between_steps.note_left_to_the_chief()
    between_steps.remember(lambda: None)
    assert (deeds.sums, deeds.skipped) == (0, True)
    between_steps.made(loop.deed("a", fails=1), leads_on=True)
    assert (deeds.sums, deeds.skipped) == (1, False)
    between_steps.made(loop.deed("b", fails=1), leads_on=True)
    assert deeds.sums == 2


def test_in_a_step_nothing_is_remembered() -> None:
    loop = Loop()
    assert between_steps.newest() is None
    assert between_steps.made(loop.deed("a"), leads_on=True) == "a"
    with pytest.raises(OSError, match="a peer has gone"):
        between_steps.made(loop.deed("b", fails=1))
