"""Tells workers that wait in a collective for others in vain: those have ended, or wait elsewhere.

That some scripts have ended while others go on needs not be wrong: the chief may have more to do
after the training. But who comes to a collective now waits for ever, so those that go on are told
who has ended. And those that wait in different collectives are told where each is.
"""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.protocol.messages import Ended, Parted
from tfrun.control.rounds.model import AwaitEnds, EndsAwaited, Reported, Result, Round
from tfrun.job.reports import WaitsInCollective

END_SECONDS = 2.0  # in which the others mostly end too


def with_end(round: Round, task: str, collectives: int | None) -> Result:
    """A script has ended, and others have not.

    Args:
      round: in RUNNING.
      task: whose script it is.
      collectives: in how many host collectives it took part; None when it has met nobody.
    """
    if round.has_servers or round.is_aside(task):
        return round, ()  # they meet each other in no collective
    round = replace(round, ended={**round.ended, task: collectives})
    if round.awaits_ends:
        return round, ()
    return replace(round, awaits_ends=True), (AwaitEnds(seconds=END_SECONDS),)


def with_stand(round: Round, event: Reported[WaitsInCollective]) -> Result:
    """A worker waits in a collective; where another one waits in another, the rest says so soon."""
    round = replace(round, stands={**round.stands, event.task: event.report})
    if round.awaits_ends or not _parted(round):
        return round, ()
    return replace(round, awaits_ends=True), (AwaitEnds(seconds=END_SECONDS),)


def tell(round: Round, event: EndsAwaited) -> Result:
    round = replace(round, awaits_ends=False)
    if places := _parted(round):
        return round, (Parted(round=round.number, places=places),)
    if round.ended:
        return round, (Ended(round=round.number, tasks=dict(round.ended)),)
    return round, ()


def _parted(round: Round) -> dict[str, str]:
    """Where those are that wait in different collectives; empty when none are known to.

    All do the same one by one. So two that are at the same number and not at the same thing wait
    for each other for ever, however long one has waited, and whatever others do meanwhile.
    """
    marks: dict[int, set[str]] = {}
    for stand in round.stands.values():
        marks.setdefault(stand.number, set()).add(stand.mark)
    return {
        task: stand.where for task, stand in round.stands.items() if len(marks[stand.number]) > 1
    }
