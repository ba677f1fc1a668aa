"""Ends the wait of workers that wait for others in vain. Pure.

That some scripts have ended while others go on needs not be wrong: the chief may have more to do
after the training. But who comes to a collective now waits for ever, so those that go on are told
who has ended. And those that wait in different collectives are told where each is.
"""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.rounds.actions import AwaitEnds, Result, TellEnded, TellParted
from tfrun.control.rounds.events import EndsAwaited
from tfrun.control.rounds.model import Round, Stands
from tfrun.job import unmatched_call
from tfrun.job.first_failure import Failure

END_SECONDS = 2.0  # in which the others mostly end too


def with_end(round: Round, task: str, collectives: int | None) -> Result:
    """A script has ended, and others have not.

    Args:
      round: in RUNNING.
      task: whose script it is.
      collectives: see `TaskDone`.
    """
    if round.has_servers or round.is_aside(task):
        return round, ()  # they meet each other in no collective
    round = replace(round, ended={**round.ended, task: collectives})
    if round.awaits_ends:
        return round, ()
    return replace(round, awaits_ends=True), (AwaitEnds(seconds=END_SECONDS),)


def with_hard_end(round: Round) -> Round:
    """Names the cause where workers have lost one that has ended itself, by `os._exit(0)`.

    A script that comes to its end in another way waits until all have.
    """
    if round.has_servers or any(not failure.follows_from_a_peer for failure in round.failures):
        return round
    gone = [task for task, status in round.exits.items() if status.code == 0]
    gone = [task for task in gone if not round.is_aside(task)]
    if not gone or not round.failures:
        return round
    first = min(round.failures, key=lambda failure: failure.time)
    who = first.task.replace(":", " ")
    where = f" in {first.error.where}" if first.error and first.error.where else ""
    failure = Failure(
        task=gone[0],
        time=first.time,
        code=unmatched_call.CODE,
        tail=f"{who} waited{where}: {unmatched_call.ended(gone)} "
        "(os._exit(0) ends a process at once)",
    )
    return replace(round, failures=(*round.failures, failure))


def with_stand(round: Round, event: Stands) -> Result:
    """A worker waits in a collective; where another one waits in another, the rest says so soon."""
    round = replace(round, stands={**round.stands, event.task: event})
    if round.awaits_ends or not _parted(round):
        return round, ()
    return replace(round, awaits_ends=True), (AwaitEnds(seconds=END_SECONDS),)


def tell(round: Round, event: EndsAwaited) -> Result:
    round = replace(round, awaits_ends=False)
    if places := _parted(round):
        return round, (TellParted(places=places),)
    return round, (TellEnded(tasks=round.ended),) if round.ended else ()


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
