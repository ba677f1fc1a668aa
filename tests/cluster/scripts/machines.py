"""Runs a job on several "machines" of one worker each: agents here, as real processes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tfrun.control.placement import Site, make_plan
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.launcher.backend import Backend, Job
from tfrun.launcher.launcher import run_job
from tfrun.launcher.local.backend import LOOPBACK
from tfrun.observe.events import EventLog
from tfrun.observe.job_summary import print_outcome
from tfrun.observe.terminal import Terminal


def run(
    workers: str,
    script: str,
    machines: Sequence[str],
    make_backend: Callable[[list[Site], Path], Backend],
    **spec: Any,
) -> None:
    """Runs the job in the directory "run" and ends with its exit code.

    Args:
      workers: as after `-n`.
      script: its path.
      machines: their names.
      make_backend: given the machines and the directory for logs.
      **spec: more of the job's specification.
    """
    run_dir = Path("run").absolute()
    logs = run_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    stated = JobSpec(
        program=Program(target=script),
        workers=WorkerRange.parse(workers),
        run_dir=str(run_dir),
        **spec,
    )
    sites = [Site(agent=name, host=LOOPBACK, slots=1) for name in machines]
    plan = make_plan(stated, sites)
    terminal = Terminal(prefix_all=False, chief=plan.chief)
    events = EventLog(run_dir / "events.jsonl")
    job = Job(spec=stated, plan=plan, backend=make_backend(sites, logs))
    began = time.time()
    outcome = asyncio.run(run_job(job, events, terminal))
    terminal.close()
    print_outcome(outcome, stated, plan.chief, terminal.summary, time.time() - began)
    sys.exit(outcome.exit_code)
