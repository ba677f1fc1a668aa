"""What a loop's script does between two training steps, so that it can be done again with others.

In a validation of its own, for example, a script computes for each replica. When a worker dies
there, nobody has what its replicas have found. So each call is remembered, with the place of its
batch in the data instead of the batch, and all that the script assigns meanwhile. Who stays does
all of it again for the replicas that it has then, and with it what the death has cut off. The
script notices nothing. At the next training step all of it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol, TypeVar

import tensorflow as tf

T = TypeVar("T")
_open: Deeds | None = None  # while the script is between two steps, and in no deed
in_step = False  # of a loop that takes turns, or in none any more


class Loop(Protocol):
    """The loop whose script is between two steps."""

    def collectives(self) -> int:
        """How many this worker has come to so far."""
        ...

    def counted(self) -> dict[Any, tf.Tensor]:
        """What each replica here has counted of each metric."""
        ...

    def enters_between(self, error: Exception) -> bool:
        """Takes this worker into the next round, where all is as it was after the newest step.

        Args:
          error: has cut off what the script did.

        Returns:
          False where this worker cannot go on.
        """
        ...

    def gives_up(self, error: Exception) -> NoReturn:
        """The script has done something that nobody here knows of: it runs again from the top."""
        ...


class Deeds:
    """What the script has done since its newest training step.

    Args:
      loop: see above.

    Attributes:
      sums: collectives that deeds have come to: who has come to others is elsewhere.
      readings: iterations over distributed data that have begun since.
      assigned: Keras variables that the script has assigned since, by their ids.
      skipped: this worker has left something to the chief to write, and nobody knows whether that
        has come to it.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._deeds: list[Callable[[], Any]] = []
        self.sums = 0
        self._known: int | None = loop.collectives()  # of them; None where there were others
        self.readings: set[Any] = set()
        self.assigned: dict[int, Any] = {}
        self.skipped = False

    @property
    def are_none(self) -> bool:
        """Whether the script has done nothing that what follows depends on."""
        return not self._deeds and not self.sums

    def make(self, deed: Callable[[], T], *, leads_on: bool) -> T:
        """Does something, again and again until no peer goes meanwhile.

        Args:
          deed: does it.
          leads_on: what follows depends on it.
        """
        global _open
        # Who stays would not come again to what is no deed, and others would wait for it there.
        is_known = self._known == self._loop.collectives()
        counted, cut_by = self._loop.counted(), None
        _open = None
        try:
            while True:
                try:
                    if cut_by is not None:
                        self._make_again(counted, cut_by)
                    before = self._loop.collectives()
                    result = deed()
                except Exception as error:
                    if not is_known or not self._loop.enters_between(error):
                        raise
                    cut_by = error
                else:
                    break
        finally:
            _open = self
        came_to = self._loop.collectives() - before
        self.sums += came_to
        self.skipped = self.skipped and not came_to
        self._known = self._loop.collectives() if is_known else None
        if leads_on:
            self._deeds.append(deed)
        return result

    def _make_again(self, counted: Mapping[Any, tf.Tensor], cut_by: Exception) -> None:
        """Makes all deeds again.

        Args:
          counted: what each replica had counted after them.
          cut_by: what has cut off the next one.
        """
        for each in self._deeds:
            each()
        found = self._loop.counted()  # of replicas that have moved elsewhere nothing
        if any(_differ(found[key], value) for key, value in counted.items() if key in found):
            self._loop.gives_up(cut_by)

    def remember(self, deed: Callable[[], Any]) -> None:
        """What follows depends on what has been done, and `deed` does again."""
        self._deeds.append(deed)


def begin(deeds: Deeds) -> None:
    """The script is between two steps from now on."""
    global _open
    _open = deeds


def end() -> None:
    """It is not any more, and nothing that it has done there is made again."""
    global _open
    _open = None


def made(deed: Callable[[], T], *, leads_on: bool = False) -> T:
    """Does something in which workers may meet; see `Deeds.make`."""
    return deed() if _open is None else _open.make(deed, leads_on=leads_on)


def newest() -> Deeds | None:
    """Where the script is between two steps, what it has done there."""
    return _open


def remember(deed: Callable[[], Any]) -> None:
    """What follows between two steps depends on what has been done, and `deed` does again."""
    if _open is not None:
        _open.remember(deed)


def assigned(variable: Any, assign: Callable[[], T], *, counts: bool) -> T:
    """The script assigns a Keras variable, outside of any step.

    Args:
      variable: which.
      assign: does so.
      counts: it is a metric's, so that other workers are asked what they have counted.
    """
    if _open is None or not tf.executing_eagerly():
        return assign()
    _open.assigned[id(variable)] = variable
    if counts:
        return _open.make(assign, leads_on=True)
    result = assign()
    _open.remember(assign)
    return result


def note_left_to_the_chief() -> None:
    """The chief alone writes something that the script has asked all workers to write."""
    if _open is not None:
        _open.skipped = True


def _differ(one: tf.Tensor, other: tf.Tensor) -> bool:
    return one.numpy().tobytes() != other.numpy().tobytes()
