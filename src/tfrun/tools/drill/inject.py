"""Injects a fault into a running job, at a random moment."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tfrun.tools.child_job import ChildJob
from tfrun.tools.drill import fault_events as reading
from tfrun.tools.drill.fault_events import JobEvent, WorkerRun
from tfrun.tools.drill.faults import FAULTS, choose

# A fault comes in this part of the training: after the beginning, and early enough that a run
# which is somewhat faster than the undisturbed one is still hit.
EARLIEST, LATEST = 0.1, 0.6
# Repeated ones are spread over this part of the training.
SPREAD = 0.7
# Of repeated ones, this part comes soon after the one before, while the job re-forms. More than
# two in a row without a step between them would be a crash loop, which has to end.
SOON, SOON_SECONDS, SOON_IN_A_ROW = 0.25, 1.5, 2


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A fault that was sent: when, in seconds since the epoch, and to whom."""

    time: float
    victims: tuple[WorkerRun, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(worker.task for worker in self.victims)


def inject(
    job: ChildJob, fault: str, *, times: int, seconds: float, chance: random.Random
) -> list[Hit]:
    """Sends the fault, and returns what was sent: fewer than `times` when the job ended before.

    The job has just started, and may be expected to train for so many `seconds`; `chance` decides
    when and whom the fault hits.
    """
    began = job.until(reading.first_step_at)
    if began is None:
        return []
    if FAULTS[fault].repeats:
        gaps = _gaps(times, SPREAD * seconds, chance)
    else:
        gaps = [seconds * chance.uniform(EARLIEST, LATEST)]
    when = began + gaps.pop()
    hits: list[Hit] = []
    soon = 0
    while job.lasts_until(when):
        if hit := _send(job, fault, hits, chance):
            hits.append(hit)
        if len(hits) == times:
            break
        last = hits[-1].time if hits else began
        soon = soon + 1 if chance.random() < SOON and soon < SOON_IN_A_ROW else 0
        if soon and hits:
            when = max(time.time(), last + chance.uniform(0, SOON_SECONDS))
            continue
        recovered = job.until(lambda events, last=last: reading.recovered_at(events, last))
        if recovered is None:
            break
        when = recovered + (gaps.pop() if gaps else 0)
    return hits


def _send(job: ChildJob, fault: str, hits: Sequence[Hit], chance: random.Random) -> Hit | None:
    struck = {worker.pid for hit in hits for worker in hit.victims}  # whose end may be no news yet

    def alive(events: Sequence[JobEvent]) -> dict[str, WorkerRun]:
        found = reading.running(events).items()
        return {task: worker for task, worker in found if worker.pid not in struck}

    workers = job.until(alive)
    if not workers:
        return None
    victims = tuple(workers[task] for task in choose(fault, tuple(workers), chance))
    now = time.time()
    sent = tuple(worker for worker in victims if job.send(worker.pid, FAULTS[fault].signal))
    return Hit(time=now, victims=sent) if sent else None


def _gaps(times: int, seconds: float, chance: random.Random) -> list[float]:
    """Returns the waits between so many moments that lie anywhere in `seconds`."""
    moments = [0.0, *sorted(chance.uniform(0, seconds) for _ in range(times))]
    return [later - earlier for earlier, later in itertools.pairwise(moments)]
