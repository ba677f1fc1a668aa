"""Puts together what a task's process is started with, or told when it gets another place. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tfrun.agent.gpus import MEMORY_GROWS
from tfrun.control.protocol.messages import StartTask
from tfrun.job.settings import WorkerSettings
from tfrun.job.spec import JobSpec

WORD = "round"  # what an agent says to a process that waits for a place in one


def new_process(
    task: StartTask,
    spec: JobSpec,
    settings: WorkerSettings,
    environment: Mapping[str, str],
    gpus: Mapping[str, str],
) -> dict[str, Any]:
    """Returns what `worker.bootstrap.live` takes.

    Args:
      task: the task.
      spec: the job.
      settings: those of all tasks of the machine.
      environment: likewise.
      gpus: the variables that say which GPUs it sees.
    """
    shared = gpus.get(MEMORY_GROWS) is not None
    own = replace(settings, task=task.task, shares_gpu=shared, **task.settings)
    return {
        "runs": task.runs,
        "program": asdict(spec.program),
        "environment": {**environment, **gpus, **task.environment, **own.variables()},
    }


def place(number: int, task: StartTask, settings: WorkerSettings) -> dict[str, Any]:
    """Returns what a process that waits is told of its place in a round.

    Its environment is that of a new process of this task, as far as that depends on the round.

    Args:
      number: the round's.
      task: the task that it becomes.
      settings: those of all tasks of the machine in this round.
    """
    own = {"task": task.task, "collective_key": settings.collective_key, **task.settings}
    variables = replace(settings, **own).variables()
    return {"number": number, "environment": {**task.environment, **variables}, "settings": own}
