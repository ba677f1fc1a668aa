"""The restart policy: which failures a new round may mend, and when it is enough."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tfrun.job.failure import Failure

# Failures of the platform that the same machine, asked again, may well not have: its agent was
# lost, its zygote died. What an agent says before it has started anything (TensorFlow does not
# import, no ports) it would say again.
_PASSING = frozenset({"TFRUN-301", "TFRUN-403", "TFRUN-404"})

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
class Restarts:
    """What is remembered from failure to failure.

    Attributes:
      limit: how many restarts in a row may come without progress; 0 turns recovery off.
      total: the restarts of the job so far.
      in_a_row: the last of them without progress.
      reached: the furthest that any failed round got.
    """

    limit: int = 3
    total: int = 0
    in_a_row: int = 0
    reached: Reached = (0, 0)

    def after_failure(self, reached: Reached) -> Restarts | None:
        """Returns the state with one more restart; None when there may be no more.

        Args:
          reached: how far the round that has failed got.
        """
        in_a_row = 0 if reached > self.reached else self.in_a_row
        if in_a_row >= self.limit:
            return None
        return replace(
            self,
            total=self.total + 1,
            in_a_row=in_a_row + 1,
            reached=max(reached, self.reached),
        )
