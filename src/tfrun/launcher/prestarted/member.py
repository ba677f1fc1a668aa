"""A process of such a group that is not the launcher: finds it and becomes an agent."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import aiohttp

from tfrun.agent.settings import AgentSettings
from tfrun.control.protocol.tls import trusting
from tfrun.job.errors import TfrunError
from tfrun.job.exits import ExitStatus
from tfrun.job.spec import JobSpec
from tfrun.job.version import __version__
from tfrun.launcher import health
from tfrun.launcher.join.refusal import why_not_in
from tfrun.launcher.local.agent_process import AgentProcess
from tfrun.launcher.prestarted.discovery import Discovery, Found
from tfrun.launcher.waiting import Waiting
from tfrun.process import lineage

POLL_SECONDS = 0.25


def run_member(
    agent: str,
    slots: int,
    discovery: Discovery,
    *,
    timeout: float,
    shows: ssl.SSLContext | None = None,
) -> int:
    """Serves the group's launcher until it lets this process go.

    Args:
      agent: this process's name.
      slots: how many workers it takes.
      discovery: how the launcher is found.
      timeout: seconds within which it has to be there.
      shows: the certificate with which it says that it lives; None is without TLS.

    Returns:
      The agent's exit code: 0 at the job's end, 74 when the launcher was lost, 75 when the job was
      preempted.

    Raises:
      TfrunError: TFRUN-306 when there is no launcher in time, or another tfrun.
    """

    async def live() -> int:
        async with health.served(discovery.port, shows):
            return await _serve(agent, slots, discovery, timeout)

    return asyncio.run(live())


async def _serve(agent: str, slots: int, discovery: Discovery, timeout: float) -> int:
    loop = asyncio.get_running_loop()
    preempted = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, preempted.set)
    looking = asyncio.create_task(_look(discovery, timeout))
    ended = asyncio.create_task(preempted.wait())
    await asyncio.wait({looking, ended}, return_when=asyncio.FIRST_COMPLETED)
    if not looking.done():
        looking.cancel()
        return 128 + signal.SIGTERM
    found, spec = looking.result()
    logs = Path(spec.run_dir, "logs")
    await asyncio.to_thread(logs.mkdir, parents=True, exist_ok=True)
    process = AgentProcess(agent, spec, slots)
    # The launcher decides what Ctrl-C means, and says so.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    told = AgentSettings(
        spec=spec,
        token=found.token,
        agent=agent,
        workers=slots,
        url=found.url,
        tls=found.tls,
        silence=spec.timeouts.launcher_timeout,
    )
    process.tell(told)
    ending = asyncio.create_task(process.wait())
    try:
        await asyncio.wait({ending, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            process.terminate()  # it tells the controller
        return ExitStatus(code=await ending).shell_code
    finally:
        ended.cancel()
        await asyncio.to_thread(lineage.kill_descendants)


async def _look(discovery: Discovery, timeout: float) -> tuple[Found, JobSpec]:
    """Asks again and again, until the launcher answers."""
    waiting = Waiting("the launcher", timeout, _say)
    reason = discovery.why
    while not waiting.is_over:
        found = await asyncio.to_thread(discovery.find)
        if found:
            try:
                job = await _ask(found)
            except (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
                reason = f"{found.url} does not answer: {why_not_in(error).text}"
            else:
                if job["version"] != __version__:
                    what = f"the launcher has tfrun {job['version']}, here is {__version__}"
                    raise TfrunError("TFRUN-306", what, fix="Install the same version everywhere")
                return found, JobSpec.from_json(job["spec"])
        waiting.because(reason)
        await asyncio.sleep(POLL_SECONDS)
    raise TfrunError(
        "TFRUN-306",
        f"no launcher was found in {timeout:.0f} s: {reason}",
        fix="See what the first task says, and whether all see the same run directory",
    )


def _say(line: str) -> None:
    print(f"tfrun: {line}", file=sys.stderr)


async def _ask(found: Found) -> Any:
    headers = {"Authorization": f"Bearer {found.token}"}
    time = aiohttp.ClientTimeout(total=5)
    async with (
        aiohttp.ClientSession(headers=headers, timeout=time) as session,
        session.get(f"{found.url}/job", ssl=trusting(found.tls)) as answer,
    ):
        answer.raise_for_status()
        return await answer.json()
