"""Has each worker that stands still show where, and ends it: the next round replaces it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Mapping
from typing import Protocol

from tfrun.agent import hangs
from tfrun.agent.worker_process import WorkerProcess
from tfrun.agent.workers_start import StartWatch
from tfrun.job import unmatched_call
from tfrun.job.timeouts import Timeouts
from tfrun.process import progress, stacks

NOT_ENDED = "a worker hangs, and cannot be ended"
KEEP_SECONDS = 5.0  # for a worker that stands still, to keep its state


class Watched(Protocol):
    """A round's workers on one machine.

    Attributes:
      workers: by name.
      starts: who watches the start of each.
      ended_for: why a worker that stood still was ended; filled in here.
      over: tasks whose scripts have ended before others.
      world_size: the workers of the round on all machines.
      is_leaving: they are leaving or being ended: nobody is watched any more.
    """

    workers: dict[str, WorkerProcess]
    starts: dict[str, StartWatch]
    ended_for: dict[str, str]
    over: Mapping[str, int | None]
    world_size: int

    @property
    def is_leaving(self) -> bool: ...
    def reading(self, worker: WorkerProcess) -> progress.Reading | None: ...
    def on_notice(self, text: str) -> None: ...


async def watch(group: Watched, timeouts: Timeouts) -> None:
    """Watches the workers until they leave."""
    asked: dict[str, hangs.Asked] = {}
    stopped: dict[str, hangs.Stopped] = {}
    ended: dict[str, int] = {}  # how often one was seen that has got SIGKILL
    while True:
        await asyncio.sleep(min(1.0, timeouts.hang_timeout / 4))
        readings = {
            name: reading
            for name, worker in group.workers.items()
            if not worker.exited.is_set() and (reading := group.reading(worker))
        }
        if group.is_leaving:
            return
        for name, reading in readings.items():
            if reading.phase is progress.Phase.WORKERS_START:
                group.starts[name].look(reading.since, group.on_notice)
                _end_if_in_vain(group.workers[name], group.over)
        now, alone = time.monotonic(), len(readings) == group.world_size
        for name in hangs.wondered_about(readings, now=now, timeouts=timeouts):
            group.workers[name].say(progress.LOOK)
            asked[name] = hangs.asked_again(asked.get(name), readings[name], now)
        answered = hangs.have_answered(asked, readings, now)
        hung = hangs.hung(readings, now=now, timeouts=timeouts, alone=alone, answered=answered)
        ended = {
            name: ended.get(name, 0) + 1
            for name, worker in group.workers.items()
            if name in group.ended_for and not worker.exited.is_set()
        }
        hung = {name: seconds for name, seconds in hung.items() if name not in ended}
        for name in (name for name, looks in ended.items() if looks == hangs.ENDED_LOOKS):
            # Its peers wait for it, and SIGKILL does nothing: the round ends without it.
            group.workers[name].fails("UnavailableError", NOT_ENDED)
        # Also one that shows no progress, as a script without a strategy does not.
        stopped = {
            name: hangs.stopped_still(stopped.get(name), used, now)
            for name, worker in group.workers.items()
            if (used := worker.stopped_at) is not None
        }
        for name, seen in stopped.items():
            if name not in {*hung, *ended} and seen.is_to_be_replaced(
                timeouts, now=now, alone=group.world_size == 1
            ):
                text = hangs.told_of_stopped(group.starts[name].called, now - seen.since)
                group.ended_for[name] = text
                group.on_notice(text)
                group.workers[name].interrupt(signal.SIGKILL)
        for name, seconds in hung.items():
            text = hangs.told(group.starts[name].called, readings[name], seconds)
            if readings[name].phase is progress.Phase.WORKERS_START:
                text += group.starts[name].end()
            group.ended_for[name] = text
            group.on_notice(text)
        await asyncio.gather(*(_end_hung(group.workers[name]) for name in hung))


def _end_if_in_vain(worker: WorkerProcess, over: Mapping[str, int | None]) -> None:
    """Ends who waits in the workers' start, and hears nothing, for one that has ended."""
    never = [task for task, last in over.items() if last is None]
    if never and not worker.raised:
        reason = unmatched_call.ended(never)
        error = unmatched_call.error("the workers' start", reason, where="")
        worker.fails(type(error).__name__, str(error))
        worker.interrupt(signal.SIGKILL)


async def _end_hung(worker: WorkerProcess) -> None:
    worker.interrupt(stacks.LOG_SIGNAL)
    worker.say("keep")
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(worker.kept.wait(), KEEP_SECONDS)
    worker.interrupt(stacks.LOG_THREADS_SIGNAL)
    await asyncio.sleep(stacks.LOG_SECONDS)
    worker.interrupt(signal.SIGKILL)
