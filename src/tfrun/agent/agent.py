"""The agent: one process per machine, between the controller and the machine's workers.

It starts TensorFlow's import at once, while the machines still find each other. Its standard
input carries its settings as one line of JSON and then stays open: when it closes, the
launcher is gone, and so is the agent with all that it started; what the machine's memory holds is
saved before, for the same command, started again. Where the network may break between the two, the
launcher may say nothing for some seconds; the workers train on meanwhile, and what they tell waits
in the connection.
SIGTERM says that the machine is being preempted: the agent tells the controller, which decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp

from tfrun.agent.background import Background
from tfrun.agent.dead_workers_snapshots import Memory
from tfrun.agent.process_ends import ProcessEnds
from tfrun.agent.settings import AgentSettings
from tfrun.agent.snapshot_directory import StateDir, remove_if_left, state_dir
from tfrun.agent.spawn import FreshSpawner, Spawner, ZygoteSpawner
from tfrun.agent.successors import Successors
from tfrun.agent.worker_environment import worker_environment
from tfrun.agent.worker_group import WorkerGroup
from tfrun.agent.zygote_process import Zygote, forks, start_zygote
from tfrun.cluster.ports import PortReservation, check_free
from tfrun.collective.handshake import key_of
from tfrun.control.protocol import messages, versions, wire
from tfrun.control.protocol.tls import trusting
from tfrun.control.remote_logs import LAST_PIECES, SEND_SECONDS, RemoteLogs
from tfrun.job import profile_request
from tfrun.job.errors import TfrunError
from tfrun.job.exits import EXIT_LOST, EXIT_PREEMPTED
from tfrun.job.settings import STATE_DIR, WorkerSettings
from tfrun.job.version import __version__
from tfrun.process import lineage, sigterm
from tfrun.process.python import usable_cores

Settle = Callable[[AgentSettings, asyncio.StreamReader], Awaitable[AgentSettings]]

LOG_BACKLOG = 100  # messages; what is beyond waits in the log file
OUTPUT_BACKLOG = 10_000  # messages; what is beyond is in the log file only


class Agent:
    """Carries out the controller's messages on this machine.

    Attributes:
      preempted: the controller has let it go because the machine is being preempted.
      lost: it has lost the controller, or the controller had given it up.
    """

    def __init__(self, settings: AgentSettings, zygote: Zygote | None = None) -> None:
        """Args:
        settings: what the launcher tells it.
        zygote: one that runs already, in the environment of the workers here.
        """
        self.name, self.spec, self._settings = settings.agent, settings.spec, settings
        self._logs = Path(self.spec.run_dir, "logs")
        self._remote_logs = RemoteLogs(self._logs, settings.token)
        self._outbox: asyncio.Queue[wire.Message] = asyncio.Queue()
        self._group: WorkerGroup | None = None
        self._round = -1
        self._preparing = asyncio.Lock()
        self._background = Background(lambda what: self._tell(f"{self.name}: {what}"))
        # It stays what it is when workers of a lost machine come here: with another number of
        # threads TensorFlow adds up in another order.
        self._environment = worker_environment(
            os.environ, self.spec, workers_here=settings.workers, cores=usable_cores()
        )
        self.preempted, self.lost = False, True
        self._is_let_go = False
        self._own_state: StateDir | None = None
        state = os.environ.get(STATE_DIR, "")
        if not state:
            for before in range(settings.attempt):  # what those that were killed have left
                with contextlib.suppress(OSError):
                    remove_if_left(state_dir(settings.token, self.name, before))
            self._own_state = StateDir(state_dir(settings.token, self.name, settings.attempt))
            state = str(self._own_state.path)
        self._worker_settings = WorkerSettings.of(self.spec, state_dir=state)
        self._memory = Memory(Path(state), self.spec, self.name)
        self._successors = Successors(self.spec, self._logs, settings.workers, self._send)
        self._spawner = self._new_spawner(zygote)

    def _new_spawner(self, zygote: Zygote | None = None) -> Spawner:
        self._spawner_died, self._ends = False, ProcessEnds()
        spawner: Spawner = FreshSpawner()
        if forks(self.spec.start_method):
            log = self._logs / f"{self.name}.zygote.log"
            zygote = zygote or start_zygote(self._environment, log, self.spec.program.file)
            spawner = ZygoteSpawner(zygote, self._on_spawner_death, self._tell)
        spawner.on_exit = self._ends.ended
        return spawner

    # --- the connection ---------------------------------------------------------------------

    async def run(self, preempted: asyncio.Event) -> None:
        """Serves the controller until it says `Shutdown`, or the connection ends.

        Args:
          preempted: set once the system has asked for this machine.
        """
        headers = {"Authorization": f"Bearer {self._settings.token}"}
        silence = self._settings.silence
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.ws_connect(
                f"{self._settings.url}/agent",
                ssl=trusting(self._settings.tls),
                max_msg_size=wire.MAX_MESSAGE_BYTES,
                # Pings, and waits half as long for each answer.
                heartbeat=silence and silence / 1.5,
            ) as socket,
        ):
            self._send(
                messages.Hello(
                    agent=self.name,
                    host=platform.node(),
                    pid=os.getpid(),
                    version=__version__,
                    programs=versions.installed(),
                )
            )
            writing, telling = self._write(socket.send_str), self._tell_once(preempted)
            works = (writing, telling, self._beat(), self._send_logs())
            helpers = [asyncio.create_task(work) for work in works]
            try:
                async for frame in socket:
                    if frame.type is not aiohttp.WSMsgType.TEXT:
                        return  # the connection broke, or nobody answers
                    message = wire.decode(frame.data)
                    if isinstance(message, messages.Shutdown):
                        self.preempted, self.lost = message.preempted, message.lost
                        self._is_let_go = True
                        for log in self._remote_logs.news(LAST_PIECES):
                            await socket.send_str(wire.encode(log))
                        return
                    self._handle(message)
            finally:
                for helper in helpers:
                    helper.cancel()

    async def close(self) -> None:
        """Ends every process that this agent has started.

        Where nobody has let it go, what its workers have come to is saved first.
        """
        self._successors.stop()
        if self._group and not self._is_let_go:
            await self._group.leave_alone()
            await self._memory.save_at_the_end()
        if self._group:
            self._group.kill()
        await self._spawner.close()
        lineage.kill_descendants()
        if self._group:
            self._group.close_ports()
        if self._own_state:
            self._own_state.close()
        await self._memory.close()

    async def _write(self, send: Callable[[str], Awaitable[None]]) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await send(wire.encode(await self._outbox.get()))

    async def _beat(self) -> None:
        while True:
            self._send(messages.Heartbeat(agent=self.name))
            await asyncio.sleep(self.spec.timeouts.heartbeat_interval)

    async def _send_logs(self) -> None:
        while True:
            await asyncio.sleep(SEND_SECONDS)
            if self._outbox.qsize() < LOG_BACKLOG:
                for log in self._remote_logs.news():
                    self._send(log)

    async def _tell_once(self, preempted: asyncio.Event) -> None:
        await preempted.wait()
        self._send(messages.Preempted(agent=self.name))

    def _send(self, message: wire.Message) -> None:
        if isinstance(message, messages.Output) and self._outbox.qsize() > OUTPUT_BACKLOG:
            return
        self._outbox.put_nowait(message)

    def _tell(self, text: str) -> None:
        self._send(messages.Notice(text=text))

    # --- the controller's messages ----------------------------------------------------------

    def _handle(self, message: wire.Message) -> None:
        match message:
            case messages.Prepare():
                self._background.run(self._prepare(message))
            case messages.SaveMemory():
                self._background.run(self._save_memory(message.round))
            case messages.StartRound() if message.in_place:
                self._go_on_in_place(message)
                return
            case messages.StartSuccessor():
                self._successors.expect(message.successor)
                self._background.run(self._start_successor(message))
            case messages.StopSuccessors():
                self._successors.stop(message.successors)
        group = self._group
        if group is None or group.number != getattr(message, "round", None):
            return  # of a round that is over here
        match message:
            case messages.StartRound():
                for port in group.ports:
                    port.release_for_use()
                self._background.run(group.start(message.each))
            case messages.Release():
                group.release()
            case messages.Ended():
                group.ended(message.tasks)
            case messages.Parted():
                group.parted(message.places)
            case messages.Save():
                group.save()
            case messages.Leave():
                group.leave()
            case messages.Regroup():
                group.regroup()
            case messages.TakeStacks():
                self._background.run(group.take_stacks(threads=message.threads))
            case messages.Profile(first=first, steps=steps, folder=folder, name=name):
                group.profile(
                    profile_request.Request(first=first, steps=steps, folder=folder, name=name)
                )
            case messages.StopRound():
                signum = signal.Signals[message.signal]
                stop = group.stop(signum, message.grace, message.tasks, after=message.after)
                self._background.run(stop)

    async def _prepare(self, message: messages.Prepare) -> None:
        async with self._preparing:
            self._round = message.round
            try:
                ports, seconds = await self._make_ready(message)
            except (TfrunError, OSError) as error:
                self._prepare_failed(
                    error.code if isinstance(error, TfrunError) else "TFRUN-301",
                    error.what if isinstance(error, TfrunError) else str(error),
                )
            else:
                ready = messages.Prepared(round=message.round, ports=ports, import_seconds=seconds)
                self._send(ready)

    def _prepare_failed(self, code: str, reason: str) -> None:
        self._send(
            messages.PrepareFailed(
                round=self._round, code=code, reason=reason, detail=str(self._logs)
            )
        )

    async def _make_ready(self, message: messages.Prepare) -> tuple[list[int], float]:
        await self._clear()
        await self._memory.claim(self._tell)
        group = self._group = self._new_group(message.round)
        group.ports.append(reserved := PortReservation(message.ports))
        for port in message.stated:
            check_free(port)
        return list(reserved.ports), await self._spawner.prepare()

    def _new_group(self, number: int) -> WorkerGroup:
        return WorkerGroup(
            number,
            self.spec,
            logs=self._logs,
            environment=self._environment,
            settings=self._settings_in(number),
            spawner=self._spawner,
            ends=self._ends,
            send=self._send,
        )

    def _settings_in(self, number: int) -> WorkerSettings:
        key = key_of(self._settings.token, number)
        return replace(self._worker_settings, collective_key=key)

    def _go_on_in_place(self, message: messages.StartRound) -> None:
        """Gives those that wait here their places in the next round, which begins at once."""
        before = self._group
        if before is None or before.number >= message.round:
            return
        group = self._group = self._new_group(message.round)
        self._round = message.round
        group.go_on(message.each, lambda name: before.take(name) or self._successors.take(name))
        for port in group.ports:
            port.release_for_use()
        before.kill()  # all the others have ended
        before.close_ports()

    async def _start_successor(self, message: messages.StartSuccessor) -> None:
        async with self._preparing:
            await self._replace_dead_spawner()
        workers = self._group.workers.values() if self._group else ()
        await self._successors.start(
            message.successor,
            message.started,
            spawner=self._spawner,
            ends=self._ends,
            settings=self._settings_in(self._round),
            environment=self._environment,
            others=[worker.gpus for worker in workers if worker.end is None],
        )

    async def _save_memory(self, number: int) -> None:
        step, problem = await self._memory.save()
        self._send(messages.MemorySaved(round=number, step=step, problem=problem))

    async def _clear(self) -> None:
        """Nothing of the round before, nor of what its scripts have started, goes on."""
        self._successors.stop()
        if self._group is None:
            return
        self._group.close_ports()
        await self._group.gone(self.spec.timeouts.leave_grace)
        await self._replace_dead_spawner()
        if self._spawner.pid is not None:
            lineage.kill_descendants(keep=self._spawner.pid)

    async def _replace_dead_spawner(self) -> None:
        if self._spawner_died:
            await self._spawner.close()
            self._spawner = self._new_spawner()

    def _on_spawner_death(self, how: str) -> None:
        self._spawner_died = True
        if self._group is None:  # before the first round, or even our hello: preparing it will tell
            return
        reason = f"the zygote process, parent of all workers here, was {how}"
        self._prepare_failed("TFRUN-404", reason)
        self._ends.orphaned()


async def _main(settle: Settle | None, zygote: Zygote | None) -> int:
    lineage.adopt_orphans()
    loop = asyncio.get_running_loop()
    preempted = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, preempted.set)
    for signum in (signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signum, lambda: None)  # the launcher decides, not the terminal
    sigterm.unshield()
    lifeline = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lifeline), sys.stdin)
    if not (line := await lifeline.readline()):
        return 0  # whoever started us is gone already
    settings = AgentSettings.from_line(line)
    if settle:
        settings = await settle(settings, lifeline)
    agent = Agent(settings, zygote)
    serving = asyncio.create_task(agent.run(preempted))
    orphaned = asyncio.create_task(lifeline.read())
    try:
        await asyncio.wait({serving, orphaned}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        await agent.close()
    if agent.preempted:
        return EXIT_PREEMPTED
    return EXIT_LOST if agent.lost else 0


def main(settle: Settle | None = None, *, zygote: Zygote | None = None) -> None:
    """Runs the agent; its exit code is 0 when the controller let it go.

    75 when that was because the machine is preempted, 74 when the two have lost each other.

    Args:
      settle: is given the settings, and the rest of the standard input, before all else; returns
        the settings that count here.
      zygote: one that runs already, in the environment that the workers will have.
    """
    sys.exit(asyncio.run(_main(settle, zygote)))


if __name__ == "__main__":
    main()
