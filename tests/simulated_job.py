"""Simulates a job of very many workers, with a real event log, monitor and control port."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tfrun.job.reports import StepsMade
from tfrun.observe import monitor as monitors
from tfrun.observe import page_server
from tfrun.observe.access import REFUSED, Access
from tfrun.observe.events import EventLog
from tfrun.observe.monitor import Monitor
from tfrun.observe.page_server import WatchRoutes
from tfrun.observe.public_port import Port

STEP_SECONDS = 0.2
MOST_UPDATES = 20  # in a second
SLOW, SLOWNESS = 17, 2.2  # this rank takes so many times as long
PER_HOST = 8


def own_seconds(rank: int, step: int) -> float:
    """Returns a worker's own time in a step: the part without communication."""
    usual = 0.08 * (1 + 0.05 * math.sin(rank)) + 0.003 * math.sin(step / 40 + rank)
    return usual * (SLOWNESS if rank == SLOW else 1)


def report(rank: int, step: int, steps: int) -> StepsMade:
    """Returns the report that a worker sends once a second."""
    own = own_seconds(rank, step)
    split = [0.01, own - 0.012, STEP_SECONDS - own, 0.002]
    more = {"logs": {"loss": loss(step), "accuracy": 1 - loss(step) / 3}} if rank == 0 else {}
    return StepsMade(
        **{"epoch": step // 1000, "in_epoch": step % 1000, "step": step},
        **{"steps": steps, "seconds": steps * STEP_SECONDS, "rss": 900 << 20, "cpu": 0.97},
        **{"split": [part * steps for part in split], **more},
    )


def loss(step: int) -> float:
    return 0.05 + 2.3 * math.exp(-step / 20_000) + 0.02 * math.sin(step / 7)


def history(workers: int, steps: int, now: float) -> Iterator[dict[str, Any]]:
    """Yields the events of a job that has made so many steps, as the monitor writes them."""
    began = now - steps * STEP_SECONDS - 10
    bounds = {"low": workers // 2, "high": workers}
    yield {"time": began, "event": "job", "name": "simulated", "started": began, "workers": bounds}
    for host in range(math.ceil(workers / PER_HOST)):
        name = f"node{host:03d}"
        yield {"time": began, "event": "agent_joined", "agent": name, "host": name}
    for state in ("preparing", "running"):
        yield {"time": began + 1, "event": "round", "number": 0, "state": state}
    for rank in range(workers):
        place = {"task": f"worker:{rank}", "round": 0, "agent": f"node{rank // PER_HOST:03d}"}
        yield {"time": began + 2, "event": "worker_started", "pid": 1000 + rank, **place}
    for rank in range(workers):
        first = {"task": f"worker:{rank}", "report": {"kind": "first_step", "step": 1}}
        yield {"time": began + 9, "event": "worker_report", **first}
    for about in (
        {"kind": "training", "global_batch": 64 * workers, "workers": workers},
        {"kind": "fit_begin", "epochs": 200, "steps": 1000},
    ):
        yield {"time": began + 9, "event": "worker_report", "task": "worker:0", "report": about}
    told, count, step, start = 0.0, 0, 0, began + 10
    every = math.ceil(workers / monitors.TASKS_IN_EVENT)
    while step < steps:
        age = step * STEP_SECONDS
        by = max(1, round(max(monitors.SECONDS, monitors.PART * age) / STEP_SECONDS))
        step, told = step + by, age
        own = [round(1000 * own_seconds(rank, step), 2) for rank in range(workers)]
        each = {"own_ms": own, "step_ms": [1000 * STEP_SECONDS] * workers}
        each |= {"rss_mb": [900] * workers, "cpu": [0.97] * workers}
        yield {
            **{"time": start + step * STEP_SECONDS, "event": "progress", "round": 0},
            **{"epoch": step // 1000, "in_epoch": step % 1000, "step": step, "steps": by},
            **{"seconds": by * STEP_SECONDS, "step_seconds": STEP_SECONDS, "workers": workers},
            "split": {"input": 0.01, "compute": 0.07, "communication": 0.118, "other": 0.002},
            "logs": {"loss": loss(step), "accuracy": 1 - loss(step) / 3},
            **({"tasks": each} if count % every == 0 else {}),
        }
        count += 1
    assert told >= 0


def make_run(run_dir: Path, workers: int, steps: int) -> None:
    """Writes the run directory of a job that has made so many steps by now."""
    (run_dir / "logs").mkdir(parents=True)
    for rank in range(workers):
        (run_dir / "logs" / f"worker-{rank}.log").write_text(f"this is worker {rank}\n")
    lines = (json.dumps(event) + "\n" for event in history(workers, steps, time.time()))
    (run_dir / "events.jsonl").write_text("".join(lines))


class SimulatedJob:
    """A simulated job that goes on from a run directory, as after a restart of its controller."""

    def __init__(self, run_dir: Path, workers: int, steps: int, pace: int = 1) -> None:
        """Args:
        run_dir: as `make_run` has left it.
        workers: how many report.
        steps: where they are.
        pace: so many seconds of the job pass in one.
        """
        self._events, self._workers, self.step = EventLog(run_dir / "events.jsonl"), workers, steps
        self._second = 1 / min(pace, MOST_UPDATES)  # between two reports
        self._steps = round(pace * self._second / STEP_SECONDS)  # in each
        if pace > 1:
            began = time.time()
            clock = SimpleNamespace(time=lambda: began + pace * (time.time() - began))
            monitors.time = clock  # type: ignore[assignment]
            page_server.STATUS_SECONDS = page_server.LOOK_SECONDS = self._second / 2
        self.monitor = Monitor(self._events, run_dir)
        access = Access("the-token", knows_users=True)
        watch = WatchRoutes(run_dir, lambda heat: self.monitor.view(heat=heat), access)
        self.port = Port(watch.routes(), access.admits, refusal=REFUSED)
        self.busy = 0.0  # seconds of the last second's reports

    async def run(self) -> None:
        """All workers report once a second, for ever."""
        await self.port.start("127.0.0.1")
        print(self.port.number, flush=True)
        while True:
            began = time.monotonic()
            self.step += self._steps
            for rank in range(self._workers):
                self.monitor.reported(f"worker:{rank}", report(rank, self.step, self._steps))
                if rank % 100 == 99:
                    await asyncio.sleep(0)
            self.busy = time.monotonic() - began
            (Path(sys.argv[1]) / "busy").write_text(f"{self.busy:.4f}")
            await asyncio.sleep(max(0.0, self._second - self.busy))


if __name__ == "__main__":
    asyncio.run(SimulatedJob(Path(sys.argv[1]), *map(int, sys.argv[2:])).run())
