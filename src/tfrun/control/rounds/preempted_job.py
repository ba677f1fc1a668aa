"""Saves the job's state and ends it when all of its machines are preempted.

What has been trained is on disk already where nothing runs, in the workers' memory where a round
runs, and in the machines' shared memory between two rounds: there a machine's agent saves it,
without the script. A round whose script has not come to its state yet has half of the time to do
so. One grace period holds for all of it.
"""

from __future__ import annotations

from dataclasses import replace

from tfrun.control.protocol.messages import MemorySaved, Save, SaveMemory
from tfrun.control.rounds.model import (
    AgentLost,
    GraceOver,
    Interrupt,
    Preempt,
    Reported,
    Result,
    Round,
    SetGrace,
    SetTimer,
    State,
    TimedOut,
)
from tfrun.control.rounds.stopping import interrupted, save_memory, stop
from tfrun.job.reports import FirstStep, Resumed, StateNotSaved, StateSaved

RESUME_PART = 0.5  # of the grace period


def preempted_before_the_start(round: Round, event: Preempt) -> Result:
    """Nobody trains yet. What an earlier round has left in memory is saved from there."""
    if round.preempting:
        return round, ()
    if round.resumes:
        return save_memory(replace(round, preempting=True))
    return nothing_to_save(round)


def preempted_while_running(round: Round, event: Preempt) -> Result:
    if round.preempting:
        return round, ()
    if all(task.runs == "server" for task in round.tasks):  # what it holds is the chief's to save
        return interrupted(round, Interrupt(signal="SIGTERM"))
    seconds = round.timeouts.preempt_grace
    round, grace = replace(round, preempting=True), SetGrace(seconds=seconds)
    if round.can_save:
        return round, (Save(round=round.number), grace)
    timer = SetTimer(state=State.RUNNING, seconds=seconds * RESUME_PART)
    return round, (grace, timer) if round.state is State.RUNNING else (grace,)


def resumed(round: Round, event: Reported[Resumed | FirstStep]) -> Result:
    """Earlier the chief would have nothing, and say that nothing is left to be saved."""
    if event.task != round.chief:
        return round, ()
    waits = round.preempting and not round.can_save
    return replace(round, resumed=True), (Save(round=round.number),) if waits else ()


def chief_not_resumed(round: Round) -> Result:
    """It takes too long: what it would go on from is still where it was."""
    if round.can_save:
        return round, ()
    return stop(replace(round, in_memory=True), "SIGKILL", 0)


def job_saved(round: Round, event: Reported[StateSaved]) -> Result:
    if not round.preempting:
        return round, ()
    round = replace(round, preempted=True, interrupted="SIGTERM", saved_step=event.report.step)
    if event.report.step is None:
        # No training of ours is open: a script that handles SIGTERM may have something to save.
        return stop(round, "SIGTERM", round.timeouts.preempt_grace)
    return stop(round, "SIGKILL", 0)


def job_not_saved(round: Round, event: Reported[StateNotSaved]) -> Result:
    """The chief tries again at each step, as long as there is time."""
    if not round.preempting:
        return round, ()
    round = replace(round, unsaved=event.report.reason)
    return grace_over(round, GraceOver()) if event.report.for_good else (round, ())


def grace_over(round: Round, event: GraceOver) -> Result:
    if not round.preempting:
        return round, ()
    # Failures that were about to be mended are not what ends the job.
    unsaved = replace(round, unsaved=round.unsaved or _too_slow(round), failures=())
    return interrupted(unsaved, Interrupt(signal="SIGTERM"))


def nothing_to_save(round: Round) -> Result:
    """Ends a round that has not started: what there is, is on disk."""
    return stop(replace(round, preempted=True, interrupted="SIGTERM"), "SIGTERM", 0)


# --- what the machines' memory holds ---------------------------------------------------------


def memory_saved(round: Round, event: MemorySaved) -> Result:
    """The end; of a job that has failed and could not go on, with a step to go on from."""
    if event.problem:
        return _memory_not_saved(round, event.problem)
    step = event.step if event.step >= 0 else None
    round = replace(round, state=State.ENDED, saved_step=step)
    if round.preempting:
        round = replace(round, preempted=True, interrupted="SIGTERM")
    return round, ()


def _memory_not_saved(round: Round, why: str) -> Result:
    round = replace(round, state=State.ENDED, unsaved=why)
    if round.preempting:
        round = replace(round, interrupted="SIGTERM", failures=())
    return round, ()


def memory_timed_out(round: Round, event: GraceOver | TimedOut) -> Result:
    return _memory_not_saved(round, _too_slow(round))


def lost_while_saving(round: Round, event: AgentLost) -> Result:
    """Another machine may have the same."""
    return replace(round, lost=round.lost | {event.agent}), (SaveMemory(round=round.number),)


def interrupted_while_saving(round: Round, event: Interrupt) -> Result:
    return replace(round, state=State.ENDED, interrupted=event.signal), ()


def _too_slow(round: Round) -> str:
    return f"it took more than {round.timeouts.preempt_grace:g} s"
