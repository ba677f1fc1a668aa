"""An agent saves to disk what its machine's memory holds, when no worker is left to do it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

from tfrun.job.python import python_command
from tfrun.job.spec import JobSpec
from tfrun.worker import sigterm

MODULE = "tfrun.train.memory"  # a process of its own: the agent goes on meanwhile


async def save_memory(folder: Path, spec: JobSpec) -> tuple[int, str]:
    """Returns the step that is on disk, -1 when nothing in memory was newer, and what went wrong.

    Args:
      folder: the machine's snapshots.
      spec: the job.
    """
    if not spec.checkpoint_dir:
        return -1, "checkpoints are off"
    with sigterm.shielded():
        process = await asyncio.create_subprocess_exec(
            *python_command(MODULE, str(folder), spec.checkpoint_dir, str(spec.keep)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    output, errors = await process.communicate()
    try:
        told = json.loads(output)
        return int(told["step"]), str(told["problem"])
    except (ValueError, KeyError):
        last = (errors.decode(errors="replace").strip().splitlines() or ["no answer"])[-1]
        return -1, f"{MODULE} ended with {process.returncode}: {last:.200}"
