"""Starts worker processes: as forks of a zygote, or as fresh processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tfrun.agent.zygote_process import Zygote
from tfrun.job import supported_versions
from tfrun.job.errors import TfrunError
from tfrun.job.exits import ExitStatus
from tfrun.process import sigterm
from tfrun.process.lineage import is_stopped
from tfrun.process.python import python_command

# What a repair of tfrun's raises where a newer TensorFlow or Keras has no place for it.
DO_NOT_FIT = ("AttributeError", "ImportError", "ModuleNotFoundError", "TypeError")
LOOK_SECONDS = 1.0

OnExit = Callable[[int, int], None]  # pid, wait status


class Spawner(Protocol):
    """Starts worker processes and tells of their ends."""

    on_exit: OnExit
    pid: int | None

    async def prepare(self) -> float:
        """Makes starting quick; returns the seconds that TensorFlow's import took.

        Raises:
          TfrunError: TFRUN-402, when TensorFlow does not import.
        """
        ...

    async def spawn(self, task: Mapping[str, Any], fds: tuple[int, int, int]) -> int:
        """Starts a worker with stdout, stderr and channel `fds`; returns its pid."""
        ...

    async def close(self) -> None: ...


def _ignore(*args: Any) -> None:
    pass


class ZygoteSpawner:
    """Forks of a process that has imported TensorFlow already: 0.15 s instead of 2-3 s."""

    def __init__(
        self, zygote: Zygote, on_death: Callable[[str], None], on_notice: Callable[[str], None]
    ) -> None:
        """Args:
        zygote: the process.
        on_death: is told how it has ended.
        on_notice: is told what a person should know.
        """
        self.on_exit: OnExit = _ignore
        self._on_death, self._on_notice = on_death, on_notice
        self._process, self._ours = zygote.process, zygote.line
        self._ours.setblocking(False)
        self._sending = asyncio.Lock()
        self._ready: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._forks: dict[int, asyncio.Future[int]] = {}  # those that are on their way
        self._requests = itertools.count()
        self._closing = False
        self.pid: int | None = self._process.pid
        loop = asyncio.get_running_loop()
        self._helpers = [loop.create_task(self._read()), loop.create_task(self._look())]

    async def prepare(self) -> float:
        return await asyncio.shield(self._ready)

    async def spawn(self, task: Mapping[str, Any], fds: tuple[int, int, int]) -> int:
        loop = asyncio.get_running_loop()
        request = next(self._requests)
        fork = self._forks[request] = loop.create_future()
        data = json.dumps({"id": request, "task": task}).encode()
        async with self._sending:
            socket.send_fds(self._ours, [len(data).to_bytes(4, "big")], list(fds))
            await loop.sock_sendall(self._ours, data)
        return await fork

    async def close(self) -> None:
        self._closing = True
        for helper in self._helpers:
            helper.cancel()
        self._ours.close()
        self._process.kill()
        await asyncio.to_thread(self._process.wait)

    async def _look(self) -> None:
        """Has a zygote that somebody has stopped (SIGSTOP) go on.

        It is the only one that can start workers here, and that learns of their ends.
        """
        while self._process.returncode is None:
            await asyncio.sleep(LOOK_SECONDS)
            if is_stopped(self._process.pid):
                self._process.send_signal(signal.SIGCONT)
                self._on_notice(
                    "the zygote process, parent of all workers here, was stopped (SIGSTOP), "
                    "and has been continued"
                )

    async def _read(self) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=self._ours.dup())
        try:
            with contextlib.suppress(ConnectionError):
                async for line in reader:
                    self._take(json.loads(line))
        finally:
            writer.close()
        status = await asyncio.to_thread(self._process.wait)
        self._fail(TfrunError("TFRUN-404", f"the zygote process ended with status {status}"))
        if not self._closing:
            self._on_death(str(ExitStatus(code=status)))

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._ready.set_result(message["ready"])
        elif "failed" in message:
            self._fail(_import_error(message["failed"]))
        elif "id" in message:
            fork = self._forks.pop(message["id"])
            if not fork.done():  # nobody waits for it any more
                fork.set_result(message["pid"])
        else:
            self.on_exit(message["pid"], message["status"])

    def _fail(self, error: TfrunError) -> None:
        for future in (self._ready, *self._forks.values()):
            if not future.done():
                future.set_exception(error)
                future.exception()  # not everybody waits for each of them


class FreshSpawner:
    """A new Python for each worker: slower, and safe everywhere."""

    def __init__(self) -> None:
        self.on_exit: OnExit = _ignore
        self.pid: int | None = None
        self._waiting: set[asyncio.Task[None]] = set()

    async def prepare(self) -> float:
        return 0.0  # each worker imports TensorFlow for itself, and fails for itself

    async def spawn(self, task: Mapping[str, Any], fds: tuple[int, int, int]) -> int:
        stdout, stderr, line = fds
        with sigterm.shielded():
            process = await asyncio.create_subprocess_exec(
                *python_command("tfrun.worker.fresh_process", str(line), str(os.getpid())),
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(line,),
                # TensorFlow reads much of its environment on import: it has to stand before.
                env=task["environment"],
                start_new_session=True,
            )
        assert process.stdin is not None
        process.stdin.write(json.dumps(task).encode())
        process.stdin.close()
        watch = asyncio.create_task(self._wait(process))
        self._waiting.add(watch)
        watch.add_done_callback(self._waiting.discard)
        return process.pid

    async def close(self) -> None:
        for watch in tuple(self._waiting):
            watch.cancel()

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self.on_exit(process.pid, -code if code < 0 else code << 8)


def _import_error(error: Mapping[str, Any]) -> TfrunError:
    if (newer := supported_versions.newer(supported_versions.installed())) and error[
        "type"
    ] in DO_NOT_FIT:
        return TfrunError(
            "TFRUN-111",
            f"{newer}, and does not work with it; install one of these, or a newer tfrun: "
            f"{error['type']}: {error['message']}",
        )
    return TfrunError(
        "TFRUN-402",
        f"TensorFlow cannot be imported: {error['type']}: {error['message']}",
        fix='The whole traceback is in the log; pip install "tfrun[cpu]" or "tfrun[gpu]" brings it',
    )
