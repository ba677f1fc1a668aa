"""Saves the snapshots in a machine's memory to disk when no worker is left to do it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tfrun.checkpoint import answer_in_time, claims
from tfrun.checkpoint.claims import Claim
from tfrun.checkpoint.remote_claims import RemoteClaim
from tfrun.job.spec import JobSpec
from tfrun.process import sigterm
from tfrun.process.python import python_command
from tfrun.storage.url import is_url

MODULE = "tfrun.state.memory_to_disk"  # a process of its own: the agent goes on meanwhile
LOOK_SECONDS = 0.1  # from look to look whether the agent of a job before has ended

T = TypeVar("T")


class Memory:
    """The states that the workers of a machine keep, and the job's checkpoints there."""

    def __init__(self, folder: Path, spec: JobSpec, agent: str) -> None:
        """Args:
        folder: the machine's snapshots.
        spec: the job.
        agent: its agent's name.
        """
        self._folder, self._spec = folder, spec
        self._claim: Claim | RemoteClaim | None = None
        if spec.checkpoint_dir and "TF_CONFIG" not in os.environ:  # their tasks share one directory
            is_remote = is_url(spec.checkpoint_dir)
            self._claim = RemoteClaim(spec.checkpoint_dir, agent) if is_remote else None
            self._claim = self._claim or Claim(Path(spec.checkpoint_dir), agent)
        self._has_asked = False

    async def claim(self, tell: Callable[[str], object]) -> None:
        """Waits until an agent of a job before, which has lost its launcher, has saved and ended.

        Args:
          tell: tells a person who is waited for.
        """
        if self._has_asked or (mine := self._claim) is None:
            return
        self._has_asked, told = True, False
        loop = asyncio.get_running_loop()
        until = loop.time() + claims.longest_wait(self._spec.timeouts)
        with contextlib.suppress(OSError):  # the chief tells that it cannot be used
            while not await self._ask(lambda claim: claim.acquire()) and loop.time() < until:
                if not told:
                    tell(claims.told(mine.holders(), self._spec.timeouts))
                told = True
                await asyncio.sleep(LOOK_SECONDS)

    async def save_at_the_end(self) -> None:
        """Saves for the same command, started again: the launcher is gone."""
        step, problem = -1, ""
        with contextlib.suppress(OSError):
            if not await self._ask(lambda claim: claim.holds):
                return
            try:
                step, problem = await asyncio.wait_for(self.save(), claims.SAVE_SECONDS)
            except asyncio.TimeoutError:
                problem = f"the disk has not answered in {claims.SAVE_SECONDS:.0f} s"
        if step >= 0 or problem:
            how = f"not saved: {problem}" if problem else f"saved at step {step:,}"
            print(f"the launcher is gone; the state in memory is {how}", file=sys.stderr)

    async def save(self) -> tuple[int, str]:
        """Returns the step that is on disk, -1 when nothing was newer, and what went wrong."""
        if not self._spec.checkpoint_dir:
            return -1, "checkpoints are off"
        job = self._spec
        given = (str(self._folder), job.checkpoint_dir, str(job.keep), job.checkpoint_lease)
        with sigterm.shielded():
            process = await asyncio.create_subprocess_exec(
                *python_command(MODULE, *given),
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

    async def close(self) -> None:
        """Nobody has to wait for this agent any more."""
        with contextlib.suppress(OSError):
            await self._ask(lambda claim: claim.release())

    async def _ask(self, of: Callable[[Claim | RemoteClaim], T]) -> T | None:
        """Asks of the claim what a disk has to answer.

        Raises:
          OSError: there is no such directory, or it does not answer in some seconds.
        """
        claim = self._claim
        return claim and await asyncio.to_thread(answer_in_time.within, lambda: of(claim))
