"""Computes what a failure has cost, in steps and in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tfrun.job.restart_policy import Reached

MAX_NAMED = 3


def lost_steps(died: Reached | None, went_on: Reached | None) -> int:
    """Returns how many steps have to be done again.

    Args:
      died: the last step that anybody has told of before the failure; None when none was made.
      went_on: where the job went on from; None for the beginning.
    """
    if died is None or died <= (went_on or (0, 0)):
        return 0  # or nobody had told, in the last second before its machine was lost
    call, step = went_on or (0, 0)
    # Another training's steps may be another model's, which counts for itself.
    return died[1] - step if died[0] == call or died[1] >= step else died[1]


def sentence(
    how: Sequence[str],
    died: Reached | None,
    went_on: Reached | None,
    *,
    workers: int,
    seconds: float,
    is_failure: bool = True,
    is_restored: bool = True,
) -> str:
    """Returns the line that tells of a recovery; "" when nothing has happened.

    Args:
      how: what has happened, in words, one after the other.
      died: as in `lost_steps`.
      went_on: likewise.
      workers: how many there are now.
      seconds: from the failure to the first new step.
      is_failure: steps may have been lost; else the workers have left between two steps.
      is_restored: a state was restored; else the script's beginning is where it goes on.
    """
    if not how:
        return ""
    text = ", then ".join(how[-MAX_NAMED:])
    many = f"{workers} worker" + ("s" if workers != 1 else "")
    lost = lost_steps(died, went_on)
    again = f", and does {lost:,} step{'s' if lost != 1 else ''} again," if lost else ""
    at = f" at step {max(died, went_on or died)[1]:,}" if died and is_failure else ""
    if is_restored and went_on:
        where = f"resumed at step {went_on[1]:,}"
    else:
        where = "restarted from the beginning"
    return f"{text}{at}; {where} with {many}{again} after {seconds:.1f} s"
