"""The agent's side of a zygote: the process, and the socket between the two.

This imports next to nothing: nobody waits for what a zygote imports as long as for TensorFlow, so
an agent starts one before it imports what it needs itself (`agent.start`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfrun.job import files
from tfrun.process import sigterm
from tfrun.process.python import python_command


@dataclass(frozen=True, kw_only=True)
class Zygote:
    """A running zygote.

    Attributes:
      process: its process, in a session of its own.
      line: our end of the socket that `worker.zygote` describes.
    """

    process: subprocess.Popen[bytes]
    line: socket.socket

    def kill(self) -> None:
        """Ends it, and with it all its workers; does not wait until it has gone."""
        self.line.close()
        self.process.kill()


def forks(start_method: str) -> bool:
    """Whether workers are forks of a zygote: "fork", "fresh", or "auto" for the platform's way."""
    # Apple's frameworks, and with them Python's own default, do not survive a fork.
    return start_method == "fork" or (start_method == "auto" and sys.platform == "linux")


def start_zygote(
    environment: Mapping[str, str], log: str | os.PathLike[str], script: str | None
) -> Zygote:
    """Starts a zygote.

    Args:
      environment: of its process.
      log: the file that its output is appended to.
      script: the file that the workers will run, if it is one.
    """
    arguments = [script] if script is not None else []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs, files.append_to(Path(log)) as output, sigterm.shielded():
        process = subprocess.Popen(
            python_command(
                "tfrun.worker.zygote", str(theirs.fileno()), str(os.getpid()), *arguments
            ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            env=dict(environment),
            start_new_session=True,
        )
    return Zygote(process=process, line=ours)
