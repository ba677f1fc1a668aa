"""The ssh command that starts an agent on another machine: its settings and its arguments."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfrun.process.python import code_to_run

CONNECT_SECONDS = 10
ALIVE_SECONDS = 2  # between two questions of ssh whether the other side is still there

_FORWARD = re.compile(r"Allocated port (\d+) for remote forward to")
FORWARD_FAILED = "remote port forwarding failed"


@dataclass(frozen=True, kw_only=True)
class Remote:
    """How things are on the other machines.

    Attributes:
      python: the Python that has tfrun.
      directory: the working directory of the workers.
      environment: variables that the workers get from here.
      sync: the script's directory is copied to each host, and is the working directory there.
    """

    python: str
    directory: str
    environment: Mapping[str, str] = field(default_factory=dict)
    sync: bool = False


def ssh_command(
    destination: str, python: str, control_host: str, control_port: int, *, silence: float = 4.0
) -> list[str]:
    """Returns the command.

    The control port is reachable on the other side at a port of its loopback interface that its
    sshd chooses and this side's ssh then tells, see `forwarded_port`.

    Args:
      destination: [user@]host, as ssh reads it.
      python: the remote Python.
      control_host: the address of the control port on this side.
      control_port: the control port on this side.
      silence: for how many seconds the other side may say nothing before ssh gives it up.
    """
    options = {
        "BatchMode": "yes",  # nobody is there to type a password for 64 hosts
        "ConnectTimeout": str(CONNECT_SECONDS),
        "ServerAliveInterval": str(ALIVE_SECONDS),
        "ServerAliveCountMax": str(math.ceil(silence / ALIVE_SECONDS)),
        # A connection of our own: a shared one tells the forwarded port to another process,
        # and lives on when this command is gone.
        "ControlMaster": "no",
        "ControlPath": "none",
        # The forwarded port is told at this level; a user's QUIET would hide it.
        "LogLevel": "INFO",
        # A forward from ~/.ssh/config that fails because it is in use already is no harm.
        "ExitOnForwardFailure": "no",
        "RemoteCommand": "none",
        "ForwardX11": "no",
    }
    settings = [f"-o{name}={value}" for name, value in options.items()]
    forward = f"127.0.0.1:0:{control_host}:{control_port}"
    command = _remote_command(python, "tfrun.launcher.remote_agent")
    return ["ssh", "-T", *settings, "-R", forward, "--", destination, command]


def ssh_module(destination: str, python: str, module: str) -> list[str]:
    """Returns the command that runs `module.main()` on another machine, and nothing else."""
    command = ssh_command(destination, python, "127.0.0.1", 0)
    at = command.index("-R")
    return [*command[:at], *command[at + 2 : -1], _remote_command(python, module)]


def _remote_command(python: str, module: str) -> str:
    # No !, no backslash and no line break in the code: csh and fish read quotes differently there.
    # exec: the shell, which may be a user's odd one, does not stay between sshd and the agent.
    return f"exec {shlex.quote(python)} -c {shlex.quote(code_to_run(module))}"


def forwarded_port(line: str) -> int | None:
    """Returns the remote port when this line of ssh's standard error tells it, else None."""
    match = _FORWARD.match(line)
    return int(match.group(1)) if match else None
