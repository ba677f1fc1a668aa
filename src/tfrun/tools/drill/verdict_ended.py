"""Decides the same for a job that was ended as a whole, or whose disk was full. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tfrun.tools.drill import events as reading
from tfrun.tools.drill.verdict import Row, Run, samples_broken

PREEMPTED = 75  # the exit code of a job that has saved because it was told to end


def judge_preempted(
    run_dir: str,
    first: Run,
    again: Run | None,
    told: float | None,
    restarted: float,
    wanted: Mapping[int, frozenset[str]],
    *,
    limit: float | None = None,
) -> Row:
    """Returns the row of a job that was told to end, and of the one that went on from it.

    Args:
      run_dir: of both.
      first: the job that was told to end.
      again: the one that was started then; None when there was no need for one.
      told: when SIGTERM came; None when the job was over before.
      restarted: when the second one was started.
      wanted: the weights of the undisturbed run.
      limit: the most seconds that the first new step may take.
    """
    if told is None or (first.code == 0 and again is None):
        return Row(fault="preempt", run_dir=run_dir)
    saved = reading.saved_at(first.events, told)
    broken = [] if first.code == PREEMPTED else [f"the job ended with {first.code}, not 75"]
    if again is None:
        return Row(fault="preempt", run_dir=run_dir, hit=1, broken=tuple(broken))
    step, resumed = reading.step_after(again.events, restarted), None
    lost: int | None = None
    if saved is not None:
        resumed = reading.resumed_step(again.events, restarted)
        lost = None if saved[1] is None else max(0, saved[1] - (resumed or 0))
    else:
        broken.append("nothing was saved")
    found = reading.weights(again.events)
    equal = found == wanted if wanted or found else None
    seconds = None if step is None else round(step - restarted, 4)
    if again.code != 0:
        broken.append("took too long" if again.timed_out else f"the job ended with {again.code}")
    elif equal is False:
        broken.append("other weights")
    if lost:
        broken.append(f"{lost} steps lost")
    if limit is not None and seconds is not None and seconds > limit:
        broken.append(f"first new step after more than {limit:g} s")
    broken += samples_broken(again)
    return Row(
        fault="preempt",
        run_dir=run_dir,
        hit=1,
        noticed=None if saved is None else round(saved[0] - told, 4),
        first_step=seconds,
        first_steps=(seconds,),
        steps_lost=lost or 0,
        weights_equal=equal,
        samples_lost=again.samples.lost if again.samples else None,
        samples_repeated=again.samples.repeated if again.samples else None,
        broken=tuple(broken),
    )


def judge_full_disk(
    run_dir: str,
    run: Run,
    filled: float | None,
    warned: float | None,
    wanted: Mapping[int, frozenset[str]],
) -> Row:
    """Returns the row of a job whose checkpoints had no room from some moment on.

    Args:
      run_dir: the job's directory.
      run: the job.
      filled: when the disk was full; None when the job was over before.
      warned: when a person was told; None for never.
      wanted: the weights of the undisturbed run.
    """
    found = reading.weights(run.events)
    equal = found == wanted if wanted or found else None
    broken = []
    if run.code != 0:
        broken.append("took too long" if run.timed_out else f"the job ended with {run.code}")
    elif filled is None:
        return Row(fault="disk", run_dir=run_dir)
    elif equal is False:
        broken.append("other weights")
    if warned is None:
        broken.append("no warning")
    broken += samples_broken(run)
    noticed = None
    if filled is not None and warned is not None:
        noticed = round(max(0.0, warned - filled), 4)
    return Row(
        fault="disk",
        run_dir=run_dir,
        hit=int(filled is not None),
        noticed=noticed,
        weights_equal=equal,
        samples_lost=run.samples.lost if run.samples else None,
        samples_repeated=run.samples.repeated if run.samples else None,
        broken=tuple(broken),
    )
