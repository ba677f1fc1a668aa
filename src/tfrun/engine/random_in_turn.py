"""What the replicas of a worker draw from the global random generators, each as if it were alone.

A step may call Python functions of the script's that draw, by `np.random` in a `tf.numpy_function`.
Each replica begins with what the generators held before the step, as one that has a worker of its
own does: else what it draws would depend on who holds it. Where no such function draws they are let
alone: the thread that reads the data may draw in the midst of a step.
"""

from __future__ import annotations

from tfrun.data import global_random


class RandomInTurn:
    """The global random generators in one step of replicas that take turns.

    Args:
      count: of replicas.
      before: what the generators held before the step, where one replica is in the midst of it.
    """

    def __init__(self, count: int, before: global_random.State | None = None) -> None:
        self._turn: int | None = None if before is None else 0
        self._before = global_random.take() if before is None else before
        self._states = [self._before] * count

    def join(self, count: int) -> None:
        """So many more make the step."""
        self._states += [self._before] * count

    def takes_turn(self, replica: int) -> None:
        """From now on a replica computes, and none else; called also when it goes on."""
        self._rests()
        self._give(replica)
        self._turn = replica

    def all_are_done(self) -> None:
        """What the last one leaves is what holds then: it alone has updated the weights."""
        self._rests()
        self._give(-1)
        self._turn = None

    def _rests(self) -> None:
        if self._turn is not None:
            self._states[self._turn] = global_random.take()

    def _give(self, replica: int) -> None:
        if global_random.Drawn.by_steps:
            global_random.give(self._states[replica])
