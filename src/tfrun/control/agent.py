"""The agent: one process a machine, between the controller and the machine's workers.

It starts TensorFlow's import at once, while the machines still find each other. Its standard
input carries its configuration as one line of JSON and then stays open: when it closes, the
launcher is gone, and so is the agent with all that it started. Where the network may break between
the two, "silence" in the configuration is for how many seconds the launcher may say nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

import tfrun
from tfrun.cluster.ports import PortReservation, reserve_ports
from tfrun.control import messages
from tfrun.job.errors import TfrunError
from tfrun.job.exits import ExitStatus
from tfrun.job.spec import JobSpec
from tfrun.worker import lineage
from tfrun.worker.environment import usable_cores, worker_environment
from tfrun.worker.gpus import share_gpus, visible_gpus
from tfrun.worker.memory import oom_kills
from tfrun.worker.process import WorkerProcess
from tfrun.worker.spawn import Spawner, make_spawner

Settle = Callable[[dict[str, Any], asyncio.StreamReader], Awaitable[None]]

OUTPUT_BACKLOG = 10_000  # messages; what is beyond is in the log file only


class Agent:
    """Carries out the controller's messages on this machine."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.name: str = config["agent"]
        self.spec = JobSpec.from_json(config["spec"])
        self._config = config
        self._silence: float | None = config.get("silence")
        self._logs = Path(self.spec.run_dir, "logs")
        self._outbox: asyncio.Queue[messages.Message] = asyncio.Queue()
        self._workers: dict[str, WorkerProcess] = {}
        self._by_pid: dict[int, WorkerProcess] = {}
        self._early_exits: dict[int, int] = {}
        self._ports: PortReservation | None = None
        self._round = -1
        self._stopping: set[asyncio.Task[None]] = set()
        self._oom_kills = oom_kills()
        self._environment = worker_environment(
            os.environ, self.spec, workers_here=config["workers"], cores=usable_cores()
        )
        self._spawner: Spawner = make_spawner(
            self.spec.start_method, self._environment, self._logs / f"{self.name}.zygote.log"
        )
        self._spawner.on_exit = self._on_pid_exit
        self._spawner.on_death = self._on_spawner_death

    # --- the connection ---------------------------------------------------------------------

    async def run(self) -> None:
        """Serves the controller until it says `Shutdown`, or the connection ends."""
        headers = {"Authorization": f"Bearer {self._config['token']}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.ws_connect(
                self._config["url"],
                max_msg_size=messages.MAX_MESSAGE_BYTES,
                # Pings, and waits half as long for each answer.
                heartbeat=self._silence and self._silence / 1.5,
            ) as socket,
        ):
            self._send(
                messages.Hello(
                    agent=self.name,
                    host=platform.node(),
                    pid=os.getpid(),
                    version=tfrun.__version__,
                    python=platform.python_version(),
                )
            )
            helpers = [
                asyncio.create_task(self._write(socket.send_str)),
                asyncio.create_task(self._beat()),
            ]
            try:
                async for frame in socket:
                    if frame.type is not aiohttp.WSMsgType.TEXT:
                        return  # the connection broke, or nobody answers
                    message = messages.decode(frame.data)
                    if isinstance(message, messages.Shutdown):
                        return
                    await self._handle(message)
            finally:
                for helper in helpers:
                    helper.cancel()

    async def close(self) -> None:
        """Ends every process that this agent has started."""
        for worker in self._workers.values():
            worker.signal(signal.SIGKILL)
        await self._spawner.close()
        lineage.kill_descendants()
        if self._ports:
            self._ports.close()

    async def _write(self, send: Callable[[str], Awaitable[None]]) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await send(messages.encode(await self._outbox.get()))

    async def _beat(self) -> None:
        while True:
            self._send(messages.Heartbeat(agent=self.name))
            await asyncio.sleep(self.spec.timeouts.heartbeat_interval)

    def _send(self, message: messages.Message) -> None:
        if isinstance(message, messages.Output) and self._outbox.qsize() > OUTPUT_BACKLOG:
            return
        self._outbox.put_nowait(message)

    # --- the controller's messages ----------------------------------------------------------

    async def _handle(self, message: messages.Message) -> None:
        match message:
            case messages.Prepare():
                self._later(self._prepare(message))
            case messages.StartRound():
                self._later(self._start(message))
            case messages.Release():
                for worker in self._workers.values():
                    if worker.serves:  # for ever, unless told otherwise
                        worker.signal(signal.SIGKILL)
                    else:
                        worker.release()
            case messages.StopRound():
                self._later(self._stop(message))

    def _later(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _prepare(self, message: messages.Prepare) -> None:
        self._round = message.round
        try:
            self._ports = reserve_ports(message.ports)
            seconds = await self._spawner.prepare()
        except (TfrunError, OSError) as error:
            code = error.code if isinstance(error, TfrunError) else "TFRUN-301"
            reason = error.what if isinstance(error, TfrunError) else str(error)
            self._send(
                messages.PrepareFailed(
                    round=message.round, code=code, reason=reason, detail=str(self._logs)
                )
            )
            return
        self._send(
            messages.Prepared(
                round=message.round, ports=list(self._ports.ports), import_seconds=seconds
            )
        )

    async def _start(self, message: messages.StartRound) -> None:
        assert self._ports is not None
        self._ports.release_for_use()
        shares = share_gpus(visible_gpus(os.environ), [task["task"] for task in message.tasks])
        await asyncio.gather(
            *(self._start_worker(task, shares[task["task"]]) for task in message.tasks)
        )

    async def _start_worker(self, task: dict[str, Any], gpus: dict[str, str]) -> None:
        name: str = task["task"]
        worker = WorkerProcess(name, self._logs / f"{name.replace(':', '-')}.log", self)
        self._workers[name] = worker
        program = self.spec.program
        try:
            await worker.start(
                self._spawner,
                {
                    "runs": task["runs"],
                    "program": {
                        "target": program.target,
                        "is_module": program.is_module,
                        "args": program.args,
                    },
                    "seed": self.spec.seed,
                    "environment": {**self._environment, **gpus, **task["environment"]},
                },
                show=task["show"],
                terminal=tuple(task["terminal"]) if task["terminal"] else None,
            )
        except TfrunError:
            return  # the zygote has died, which is reported for itself
        assert worker.pid is not None
        self._by_pid[worker.pid] = worker
        self._send(messages.WorkerStarted(round=self._round, task=name, pid=worker.pid))
        if worker.pid in self._early_exits:
            self._on_pid_exit(worker.pid, self._early_exits.pop(worker.pid))

    async def _stop(self, message: messages.StopRound) -> None:
        signum = signal.Signals[message.signal]
        for worker in self._workers.values():
            # One that has raised is leaving by itself and still runs its exit handlers.
            if not worker.raised or signum is signal.SIGKILL:
                worker.signal(signum)
        exits = [asyncio.create_task(worker.exited.wait()) for worker in self._workers.values()]
        if exits:
            await asyncio.wait(exits, timeout=message.grace)
        for worker in self._workers.values():
            worker.signal(signal.SIGKILL)

    # --- the workers' news ------------------------------------------------------------------

    def _on_pid_exit(self, pid: int, status: int) -> None:
        worker = self._by_pid.pop(pid, None)
        if worker is None:
            self._early_exits[pid] = status
            return
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        memory = killed and oom_kills() > self._oom_kills
        self._oom_kills = oom_kills()
        self._later(worker.ended(ExitStatus.from_wait_status(status, out_of_memory=memory)))

    def _on_spawner_death(self, how: str) -> None:
        self._send(
            messages.PrepareFailed(
                round=self._round,
                code="TFRUN-404",
                reason=f"the zygote process, parent of all workers here, was {how}",
                detail=str(self._logs),
            )
        )

    def on_output(self, task: str, stream: str, text: str) -> None:
        self._send(messages.Output(task=task, stream=stream, text=text))

    def on_report(self, task: str, report: dict[str, Any]) -> None:
        self._send(
            messages.WorkerReport(round=self._round, task=task, time=time.time(), report=report)
        )

    def on_exit(self, worker: WorkerProcess, when: float, status: ExitStatus) -> None:
        self._send(
            messages.WorkerExited(
                round=self._round,
                task=worker.name,
                time=when,
                code=status.code,
                out_of_memory=status.out_of_memory,
                requested=worker.was_told_to(status),
                tail=worker.tail,
            )
        )

    def on_notice(self, text: str) -> None:
        self._send(messages.Notice(text=text))


async def _main(settle: Settle | None) -> None:
    lineage.adopt_orphans()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signum, lambda: None)  # the launcher decides, not the terminal
    lifeline = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lifeline), sys.stdin)
    if not (line := await lifeline.readline()):
        return  # whoever started us is gone already
    config = json.loads(line)
    if settle:
        await settle(config, lifeline)
    agent = Agent(config)
    serving = asyncio.create_task(agent.run())
    orphaned = asyncio.create_task(lifeline.read())
    terminated = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, terminated.set)
    ended = asyncio.create_task(terminated.wait())
    try:
        await asyncio.wait({serving, orphaned, ended}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        await agent.close()


def main(settle: Settle | None = None) -> None:
    """Runs the agent; its exit code is 0 when the controller let it go.

    Args:
      settle: is given the configuration, and the rest of the standard input, before all else.
    """
    asyncio.run(_main(settle))


if __name__ == "__main__":
    main()
