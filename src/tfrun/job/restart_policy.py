"""The restart policy: which failures a new round may mend, and when to give up."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tfrun.job.first_failure import Failure

# Failures of the platform that the same machine, asked again, may well not have: its agent was
# lost, its zygote died. What an agent says before it has started anything (TensorFlow does not
# import, no ports) it would say again.
_PASSING = frozenset({"TFRUN-301", "TFRUN-403", "TFRUN-404"})

UNSEEN_SECONDS = 60.0  # of a round without a step that anybody has seen: it may well train
ALIKE = 0.2  # two such rounds that are as long as each other, but for so much, end at one place

Reached = tuple[int, int]
"""How far a job got: the number of its `fit` call, the optimizer's iterations."""


class Cause(enum.Enum):
    """Whose failure it is.

    INFRASTRUCTURE: a process, a machine or the network ended it; the next round may not meet it.
    SCRIPT: the script's own exception or exit code, or what every round would meet again.
    """

    INFRASTRUCTURE = "infrastructure"
    SCRIPT = "script"


def cause_of(failure: Failure) -> Cause:
    """Returns whose failure it is.

    A signal is nobody's statement, so a segmentation fault counts as infrastructure too; when it
    comes at the same step every time, the limit of `Restarts` ends the job.
    """
    if failure.error:
        passing = failure.follows_from_a_peer
    elif failure.status is not None:
        passing = failure.status.out_of_memory or failure.status.code < 0
    else:
        passing = failure.code in _PASSING or failure.silent
    return Cause.INFRASTRUCTURE if passing else Cause.SCRIPT


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What a round did that has failed, and for how many seconds.

    `began` is where it went on from, `reached` how far it came; None where nobody has seen a step.
    """

    began: Reached | None = None
    reached: Reached | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """What is remembered from failure to failure.

    Progress is a step beyond what the rounds before had done that went on from the same state; of
    one that went on from another state, any step, unless it ends where the last one did. A job that
    has lost its newest state, and falls back to an older one, may make the same steps again: as
    often as the limit says to a state that is no newer than the one it last fell back to.

    Attributes:
      limit: how many restarts in a row may come without progress; 0 turns recovery off.
      total: the restarts of the job so far.
      in_a_row: the last of them without progress.
      began: where the last failed round went on from; None when no step has been seen yet.
      reached: the furthest of the rounds that went on from there.
      ended: where the last one ended.
      fell_to: the state that the job last fell back to.
      falls: how often in a row that was no newer one.
      unseen: for how many seconds the last round ran of which nobody saw a step.
    """

    limit: int = 3
    total: int = 0
    in_a_row: int = 0
    began: Reached | None = None
    reached: Reached = (0, 0)
    ended: Reached | None = None
    fell_to: Reached | None = None
    falls: int = 0
    unseen: float = 0.0

    def after_failure(self, stretch: Stretch) -> Restarts | None:
        """Returns the state with one more restart; None when there may be no more."""
        after, is_progress = self._seen(stretch) if stretch.reached else self._unseen(stretch)
        in_a_row = 0 if is_progress else self.in_a_row
        if in_a_row >= self.limit:
            return None
        return replace(after, total=self.total + 1, in_a_row=in_a_row + 1)

    def _seen(self, stretch: Stretch) -> tuple[Restarts, bool]:
        reached, began = stretch.reached, stretch.began
        assert reached is not None
        if self.began is None:
            began = (0, 0) if began is None else began
            return replace(self, began=began, reached=reached, ended=reached), reached > began
        after, began = self, self.began if began is None else began
        if began < self.began:
            is_newer = self.fell_to is None or began > self.fell_to
            falls = 1 if is_newer else self.falls + 1
            after = replace(after, fell_to=began, falls=falls)
            if falls > self.limit:
                began = self.began  # it has made these steps often enough
        if began == self.began:
            is_progress, reached = reached > self.reached, max(reached, self.reached)
        else:
            is_progress = reached > began and reached != self.ended
        return replace(after, began=began, reached=reached, ended=stretch.reached), is_progress

    def _unseen(self, stretch: Stretch) -> tuple[Restarts, bool]:
        """A loop that nobody can look into trains when it runs, until another time each time."""
        seconds, last = stretch.seconds, self.unseen
        is_alike = min(seconds, last) > (1 - ALIKE) * max(seconds, last)
        is_progress = self.began is None and seconds >= UNSEEN_SECONDS and not is_alike
        return replace(self, unseen=seconds), is_progress
