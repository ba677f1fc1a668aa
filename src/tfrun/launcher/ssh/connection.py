"""One ssh process, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from tfrun.agent.settings import AgentSettings
from tfrun.job import files
from tfrun.job.errors import TfrunError
from tfrun.launcher.remote_agent import read_line
from tfrun.launcher.ssh.command import FORWARD_FAILED, forwarded_port
from tfrun.launcher.ssh.failure import why_ssh_ended
from tfrun.launcher.waiting import Reason

TAIL_LINES = 20
MAX_LINE = 1 << 16


class SshConnection:
    """Starts an agent over SSH and stays until it has ended.

    Attributes:
      told: the remote side is ours and has been sent its settings.
    """

    def __init__(
        self,
        command: list[str],
        python: str,
        log: Path,
        configure: Callable[[Mapping[str, Any], int], AgentSettings],
        copy: Path | None = None,
    ) -> None:
        """Args:
        command: the ssh command.
        python: the remote Python, for messages.
        log: receives what ssh and the remote agent say.
        configure: is given the greeting and the control port there, and makes the settings.
        copy: a file whose bytes follow the settings.
        """
        self._copy = copy
        self._sending: asyncio.Task[None] | None = None
        self._command, self._python, self._log, self._configure = command, python, log, configure
        self._process: asyncio.subprocess.Process | None = None
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._greeting: Mapping[str, Any] | None = None
        self._port: int | None = None
        self._verdict: Reason | None = None
        self.told = False

    async def run(self) -> Reason:
        """Returns why it ended.

        Raises:
          TfrunError: TFRUN-304 when there is no ssh here.
        """
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches the launcher alone, which decides
            )
        except OSError as error:
            fix = "Install the OpenSSH client"
            what = f"ssh cannot be started: {error.strerror}"
            raise TfrunError("TFRUN-304", what, where="this machine", fix=fix) from None
        assert process.stdout and process.stderr
        try:
            await asyncio.gather(self._read_out(process.stdout), self._read_err(process.stderr))
            code = await process.wait()
        finally:
            if self._sending:
                self._sending.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
        return self._verdict or why_ssh_ended(code, self._tail, self._python)

    def hang_up(self) -> None:
        """Closes the standard input: the remote agent ends, and all that it started."""
        if self._process and self._process.stdin:
            self._process.stdin.close()

    async def _read_out(self, stream: asyncio.StreamReader) -> None:
        # What a login shell's profile prints is read over.
        async for line in _lines(stream):
            said = read_line(line, "this machine")
            if isinstance(said, TfrunError):
                self._refuse(Reason(text=said.what, permanent=True, code=said.code))
            elif said:
                self._greeting = said
                self._tell_when_ready()

    async def _read_err(self, stream: asyncio.StreamReader) -> None:
        with files.append_to(self._log) as log:
            async for line in _lines(stream):
                log.write(f"{line}\n".encode("utf-8", "replace"))
                self._tail.append(line)
                if (port := forwarded_port(line)) is not None:
                    self._port = port
                    self._tell_when_ready()
                elif FORWARD_FAILED in line and not self.told:
                    text = "its SSH server forbids port forwarding (AllowTcpForwarding)"
                    self._refuse(Reason(text=text, permanent=True, code="TFRUN-304"))

    def _refuse(self, reason: Reason) -> None:
        self._verdict = self._verdict or reason
        self.hang_up()

    def _tell_when_ready(self) -> None:
        if self._greeting is None or self._port is None or self._verdict or self.told:
            return
        assert self._process and self._process.stdin
        self.told = True
        self._process.stdin.write(self._configure(self._greeting, self._port).to_line())
        if self._copy:
            self._sending = asyncio.create_task(self._send(self._copy, self._process.stdin))

    @staticmethod
    async def _send(copy: Path, stdin: asyncio.StreamWriter) -> None:
        with copy.open("rb") as file, contextlib.suppress(ConnectionError):
            while chunk := file.read(MAX_LINE):
                stdin.write(chunk)
                await stdin.drain()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yields lines without their ends, however long; those over 64 KB in pieces."""
    held = b""
    while chunk := await stream.read(MAX_LINE):
        *lines, held = (held + chunk).split(b"\n")
        if len(held) > MAX_LINE:
            lines, held = [*lines, held], b""
        for line in lines:
            yield line.rstrip(b"\r").decode("utf-8", "replace")
    if held:
        yield held.decode("utf-8", "replace")
