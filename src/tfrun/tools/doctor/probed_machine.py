"""One machine that is asked: its probe, over SSH or as a child process."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import deque
from typing import Any

from tfrun.cluster.host_lists import Host
from tfrun.job.version import __version__
from tfrun.launcher.ssh.command import CONNECT_SECONDS, ssh_module
from tfrun.launcher.ssh.failure import why_ssh_ended
from tfrun.process.python import python_command
from tfrun.tools.doctor import large_packets
from tfrun.tools.doctor.probe import PREFIX

MODULE = "tfrun.tools.doctor.probe"
ANSWER_SECONDS = 60.0
LEAVE_SECONDS = 3.0
NARROW_SECONDS = 3.0
LIMIT = 1 << 22


class Silent(Exception):
    """A machine does not answer, or cannot: the text says why."""


class ProbedMachine:
    """One machine's probe, from its start to its end.

    Attributes:
      name: as the user calls it.
    """

    def __init__(self, host: Host | None, python: str) -> None:
        """Args:
        host: the machine; None for this one.
        python: the Python there.
        """
        self.name = host.name if host else "this machine"
        self._python, self._is_remote = python, host is not None
        self._command = (
            ssh_module(host.destination, python, MODULE) if host else python_command(MODULE)
        )
        self._destination = host.destination if host else ""
        self._process: asyncio.subprocess.Process | None = None
        self._tail: deque[str] = deque(maxlen=20)
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the probe.

        Raises:
          Silent: it does not start.
        """
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                limit=LIMIT,
                start_new_session=True,
            )
        except OSError as error:
            raise Silent(f"{self._command[0]} cannot be started: {error.strerror}") from None
        self._listening = asyncio.create_task(self._listen(process))
        greeting = await self._read(2 * CONNECT_SECONDS)
        if greeting["version"] != __version__:
            there = greeting["version"]
            raise Silent(f"it has tfrun {there}, this machine has {__version__}")

    async def ask(self, question: str, **values: Any) -> dict[str, Any]:
        """Returns the answer.

        Raises:
          Silent: there is none, or it is an error.
        """
        assert self._process and self._process.stdin
        asked = json.dumps({"question": question, "values": values}).encode() + b"\n"
        try:
            self._process.stdin.write(asked)
            await self._process.stdin.drain()
        except ConnectionError:
            raise Silent("its connection was lost") from None
        answer = await self._read(ANSWER_SECONDS)
        if "error" in answer:
            raise Silent(answer["error"])
        return answer

    async def narrow(self) -> int:
        """Returns the MTU of the way to its SSH server, if large packets are lost on it; else 0.

        With a jump host or a proxy nobody knows from here.
        """
        if not self._is_remote:
            return 0
        try:
            asked = await asyncio.create_subprocess_exec(
                *("ssh", "-G", "--", self._destination),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            said, _ = await asyncio.wait_for(asked.communicate(), LEAVE_SECONDS)
        except (OSError, asyncio.TimeoutError):
            return 0
        pairs = (line.partition(" ") for line in said.decode("utf-8", "replace").splitlines())
        settings = {name: value for name, _, value in pairs}
        if {"proxyjump", "proxycommand"} & settings.keys() or "hostname" not in settings:
            return 0
        where = settings["hostname"], int(settings.get("port", "22"))
        try:
            return await asyncio.to_thread(large_packets.narrow, *where, NARROW_SECONDS)
        except OSError:
            return 0  # not even a connection is made, which is another fault

    async def close(self) -> None:
        """Ends the probe."""
        if self._process is None:
            return
        assert self._process.stdin
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), LEAVE_SECONDS)
        except asyncio.TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._listening:
            await self._listening

    async def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process and self._process.stdout
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:  # a login shell's profile may print something
            left = max(0.0, deadline - loop.time())
            try:
                line = await asyncio.wait_for(self._process.stdout.readline(), left)
            except asyncio.TimeoutError:
                raise Silent(f"no answer in {seconds:.0f} s") from None
            if not line:
                raise Silent(await self._why())
            text = line.decode("utf-8", "replace")
            if text.startswith(PREFIX):
                return json.loads(text.removeprefix(PREFIX))

    async def _why(self) -> str:
        assert self._process and self._listening
        code = await self._process.wait()
        await self._listening
        if self._is_remote:
            return why_ssh_ended(code, self._tail, self._python).text
        return f"exit code {code}: {self._tail[-1] if self._tail else ''}"

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr
        async for line in process.stderr:
            self._tail.append(line.decode("utf-8", "replace").rstrip())
