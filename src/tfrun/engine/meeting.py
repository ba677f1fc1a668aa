"""Who of a worker's replicas computes, and who waits. Pure: decides, and is told what happens."""

from __future__ import annotations

import enum
from collections.abc import Callable

from tfrun.collective.errors import Disagreement


class Doing(enum.Enum):
    """What a replica does.

    NOT_BEGUN: its step has not begun.
    COMPUTES: it has the turn; one at a time has.
    WAITS: for the others, which have to hand in what it has handed in.
    MAY_GO_ON: all have handed in; it goes on when it is its turn.
    HAS_ENDED: its step is over.
    """

    NOT_BEGUN = enum.auto()
    COMPUTES = enum.auto()
    WAITS = enum.auto()
    MAY_GO_ON = enum.auto()
    HAS_ENDED = enum.auto()


class Meeting:
    """One step of all replicas of a worker; they compute one after the other.

    Args:
      count: of replicas.
      begin: is called with the position of a replica whose step is to begin.
      wake: is called with the position of a replica that goes on.
    """

    def __init__(
        self, count: int, begin: Callable[[int], None], wake: Callable[[int], None]
    ) -> None:
        self._doing = [Doing.NOT_BEGUN] * count
        self._begin, self._wake = begin, wake
        self._where = ""

    def start(self) -> None:
        """Gives the first replica the turn."""
        self._pass_on()

    @property
    def nobody_waits(self) -> bool:
        """Whether who hands in next is the first one to do so."""
        return Doing.WAITS not in self._doing

    def is_last(self, replica: int) -> bool:
        """Whether all others of the step wait for this one."""
        return all(d is Doing.WAITS for i, d in enumerate(self._doing) if i != replica)

    def hands_in(self, replica: int, where: str) -> bool:
        """A replica has handed in what is to be summed; it waits unless it is the last one.

        Args:
          replica: its position.
          where: names the sum.

        Returns:
          Whether all have handed in. It then sums for all, and still has the turn.

        Raises:
          Disagreement: another replica is at another sum, or past its step.
        """
        others = {doing for i, doing in enumerate(self._doing) if i != replica}
        if Doing.HAS_ENDED in others:
            raise Disagreement(f"replicas of one worker differ: one is at {where}, one has ended")
        if Doing.WAITS in others and where != self._where:
            raise Disagreement(
                f"replicas of one worker differ: one is at {where}, one at {self._where}"
            )
        self._where = where
        if self.is_last(replica):
            self._doing = [Doing.MAY_GO_ON] * len(self._doing)
            self._doing[replica] = Doing.COMPUTES
            return True
        self._doing[replica] = Doing.WAITS
        self._pass_on()
        return False

    def all_wait(self) -> None:
        """What all have handed in cannot be summed: others have to hand in as well, who `join`."""
        self._doing = [Doing.WAITS] * len(self._doing)

    def join(self, count: int) -> None:
        """So many more make the step, while the others wait; the first of them has the turn."""
        self._doing += [Doing.NOT_BEGUN] * count
        self._pass_on()

    def ends(self, replica: int) -> None:
        """A replica's step is over.

        Raises:
          Disagreement: another replica waits for what this one never hands in.
        """
        self._doing[replica] = Doing.HAS_ENDED
        self._pass_on()

    def _pass_on(self) -> None:
        for i, doing in enumerate(self._doing):
            if doing in (Doing.NOT_BEGUN, Doing.MAY_GO_ON):
                self._doing[i] = Doing.COMPUTES
                (self._begin if doing is Doing.NOT_BEGUN else self._wake)(i)
                return
        if Doing.WAITS in self._doing:
            raise Disagreement(
                f"replicas of one worker differ: one is at {self._where}, one has ended"
            )
