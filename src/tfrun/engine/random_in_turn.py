"""What the replicas of a worker draw from the global random generators, each as if it were alone.

A step may call Python functions of the script's that draw, by `np.random` in a `tf.numpy_function`.
Each replica begins with what the generators held before the step, as one that has a worker of its
own does: else what it draws would depend on who holds it. TensorFlow calls such a function when its
inputs are there, also after the replica has handed in a sum that does not need it, so the
generators change hands with each call. Where none has drawn they are let alone: the thread that
reads the data may draw in the midst of a step.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tfrun.data import global_random


class RandomInTurn:
    """The global random generators, and the Python that steps of this worker's replicas call.

    Attributes:
      last: the replica that has updated the weights: what it leaves is what holds after the step.
    """

    def __init__(self) -> None:
        self.last = 0
        self._states: list[global_random.State] = []  # of each replica; [] where they are one's
        self._before: global_random.State = ()
        self._changed = threading.Condition()
        self._running, self._place = 0, 0  # calls, and whose they are or were

    def begins(self, count: int, before: global_random.State | None = None) -> None:
        """A step of so many replicas begins.

        Args:
          count: of replicas.
          before: what the generators held before it, where one replica is in the midst of it.
        """
        with self._changed:
            self._before = global_random.take() if before is None else before
            self._states = [self._before] * count
            self._place = self.last = 0

    def join(self, count: int) -> None:
        """So many more make the step."""
        if self._states:
            self._states += [self._before] * count

    @contextmanager
    def python_of(self, place: int) -> Iterator[None]:
        """While it lasts Python runs that the step of a replica calls, and none of another's."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running or self._place == place)
            self._goes_to(place)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def all_are_done(self) -> None:
        """The step is over."""
        with self._changed:
            if self._states:
                self._goes_to(self.last)
            self._states = []

    def _goes_to(self, place: int) -> None:
        if self._states and place != self._place:
            self._states[self._place] = global_random.take()
            if global_random.Drawn.by_steps:
                global_random.give(self._states[place])
        self._place = place
