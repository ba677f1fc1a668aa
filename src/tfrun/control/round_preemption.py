"""What a round does when the system wants the job's machines back: it saves, then ends.

What has been trained is on disk already where nothing runs, in the workers' memory where a round
runs, and in the machines' shared memory between two rounds. In that case the next round begins, and
saves as soon as the chief has restored its state. One grace period holds for all of it.
"""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.round_ends import stop
from tfrun.control.round_interrupts import interrupted
from tfrun.control.round_terms import (
    ChiefResumed,
    GraceOver,
    Interrupt,
    JobNotSaved,
    JobSaved,
    Preempt,
    Result,
    Round,
    SaveTasks,
    SetGrace,
)


def preempted_before_the_start(round: Round, event: Preempt) -> Result:
    """Nobody trains yet. What an earlier round has left in memory is saved by this one."""
    if round.preempting:
        return round, ()
    if round.resumes:
        return replace(round, preempting=True), (SetGrace(seconds=round.timeouts.preempt_grace),)
    return nothing_to_save(round)


def preempted_while_running(round: Round, event: Preempt) -> Result:
    if round.preempting:
        return round, ()
    save = (SaveTasks(),) if round.can_save else ()
    grace = SetGrace(seconds=round.timeouts.preempt_grace)
    return replace(round, preempting=True), (*save, grace)


def chief_resumed(round: Round, event: ChiefResumed) -> Result:
    """Earlier the chief would have nothing, and say that nothing is left to be saved."""
    waits = round.preempting and not round.can_save
    return replace(round, resumed=True), (SaveTasks(),) if waits else ()


def job_saved(round: Round, event: JobSaved) -> Result:
    if not round.preempting:
        return round, ()
    round = replace(round, preempted=True, interrupted="SIGTERM", saved_step=event.step)
    if event.step is None:
        # No training of ours is open: a script that handles SIGTERM may have something to save.
        return stop(round, "SIGTERM", round.timeouts.preempt_grace)
    return stop(round, "SIGKILL", 0)


def job_not_saved(round: Round, event: JobNotSaved) -> Result:
    """The chief tries again at each step, as long as there is time."""
    if not round.preempting:
        return round, ()
    round = replace(round, unsaved=event.reason)
    return grace_over(round, GraceOver()) if event.for_good else (round, ())


def grace_over(round: Round, event: GraceOver) -> Result:
    if not round.preempting:
        return round, ()
    reason = round.unsaved or f"it took more than {round.timeouts.preempt_grace:g} s"
    # Failures that were about to be mended are not what ends the job.
    unsaved = replace(round, unsaved=reason, failures=())
    return interrupted(unsaved, Interrupt(signal="SIGTERM"))


def nothing_to_save(round: Round) -> Result:
    """Ends a round that has not started: what there is, is on disk."""
    return stop(replace(round, preempted=True, interrupted="SIGTERM"), "SIGTERM", 0)
