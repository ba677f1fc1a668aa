"""What ssh, srun or `tfrun join` starts on a machine: prepares, then becomes its agent."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from tfrun.agent.settings import AgentSettings
from tfrun.job.errors import TfrunError
from tfrun.job.start_checks import check_program, check_tensorflow
from tfrun.job.version import __version__
from tfrun.launcher.prestarted.discovery import Discovery
from tfrun.launcher.ssh.copy_directory import unpack

GREETING = "tfrun-remote-greeting "
FAILURE = "tfrun-remote-failure "
SEE_SECONDS = 15.0  # for a shared file system to show a new file
POLL_SECONDS = 0.25


def main() -> None:
    """Greets the launcher with one line on standard output, then reads its settings."""
    greeting = {
        "version": __version__,
        "address": own_address(os.environ.get("SSH_CONNECTION", ""), interfaces()),
    }
    print(GREETING + json.dumps(greeting), flush=True)
    try:
        from tfrun.agent import agent  # not above: while it is imported the answer comes

        agent.main(settle)
    except TfrunError as error:
        print(FAILURE + json.dumps({"code": error.code, "what": error.what}), flush=True)
        sys.exit(1)


def read_line(line: str, here: str) -> dict[str, Any] | TfrunError | None:
    """Reads a line that such a process has printed: its greeting, or why the job cannot run there.

    Args:
      line: the line; None is returned for any other.
      here: this machine, as a person calls it.
    """
    if line.startswith(FAILURE):
        said = json.loads(line.removeprefix(FAILURE))
        return TfrunError(said["code"], said["what"], where=here)
    if not line.startswith(GREETING):
        return None
    greeting = json.loads(line.removeprefix(GREETING))
    if (there := greeting["version"]) != __version__:
        return _cannot(f"it has tfrun {there}, {here} has {__version__}")
    return greeting


def interfaces() -> list[str]:
    """Returns the addresses of this machine's interfaces that are up."""
    states = psutil.net_if_stats()
    return [
        address.address
        for name, addresses in psutil.net_if_addrs().items()
        if name in states and states[name].isup
        for address in addresses
    ]


def own_name(otherwise: str) -> str:
    """Returns what this machine calls itself, as a file may be called."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", platform.node())[:200] or otherwise


def own_address(ssh_connection: str, interfaces: Iterable[str]) -> str:
    """Returns the address at which other machines reach this one; "" when there is none to see.

    It is the one at which the launcher's ssh arrived: it works when the name that the launcher
    uses is known only to its ~/.ssh/config, or stands for 127.0.1.1 in this machine's /etc/hosts.
    When the launcher is on this very machine, it is the first interface's that is not loopback.

    Args:
      ssh_connection: the variable of that name: "client-ip client-port server-ip server-port".
      interfaces: the addresses of the interfaces that are up.
    """
    arrived = ssh_connection.split()[2:3]
    return next((text for text in (*arrived, *interfaces) if _is_reachable(text)), "")


def _is_reachable(text: str) -> bool:
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:  # a hardware address, or a scope that means nothing elsewhere
        return False
    return not (ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast)


async def settle(settings: AgentSettings, lifeline: asyncio.StreamReader) -> AgentSettings:
    """Takes the job's directory and environment over, and looks whether the job can run here.

    Raises:
      TfrunError: TFRUN-305.
    """
    if settings.agents:  # srun tells all nodes the same
        node = os.environ["SLURMD_NODENAME"]
        settings = replace(settings, agent=node, workers=settings.agents[node])
    if settings.discovery:
        settings = await _meet(settings)
    os.environ.update(settings.environment)
    spec, directory = settings.spec, settings.directory
    try:
        Path(spec.run_dir, "logs").mkdir(parents=True, exist_ok=True)
        if settings.copy_bytes:
            await unpack(Path(directory), settings.copy_bytes, lifeline.read)
    except OSError as error:
        raise _cannot(f"the run directory {spec.run_dir!r}: {error.strerror}") from None
    try:
        os.chdir(directory)
    except OSError as error:
        raise _cannot(f"its directory {directory!r} cannot be entered: {error.strerror}") from None
    try:
        check_program(spec.program)
        check_tensorflow()
    except TfrunError as error:
        raise _cannot(f"{error.what}, in {directory!r}") from None
    return settings


async def _meet(settings: AgentSettings) -> AgentSettings:
    """Reads in a file of the run directory what srun must not pass on.

    Raises:
      TfrunError: TFRUN-305 when it is not there.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SEE_SECONDS
    file = Path(settings.discovery)
    discovery = Discovery(file=file)
    while not (found := await asyncio.to_thread(discovery.find)):
        if loop.time() > deadline:
            where = str(file.parent)
            raise _cannot(f"it does not see the run directory {where!r} of the launcher's node")
        await asyncio.sleep(POLL_SECONDS)
    return replace(settings, url=found.url, token=found.token, tls=found.tls)


def _cannot(what: str) -> TfrunError:
    return TfrunError("TFRUN-305", what)
