"""Starts, watches and ends the workers of one round on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from tfrun.agent import hang_watch, task_process
from tfrun.agent.background import Background
from tfrun.agent.gpus import share_gpus, visible_gpus
from tfrun.agent.process_ends import ProcessEnds
from tfrun.agent.spawn import Spawner
from tfrun.agent.worker_process import WorkerProcess
from tfrun.agent.workers_start import StartWatch
from tfrun.cluster.ports import PortReservation
from tfrun.control.protocol import messages, wire
from tfrun.job import profile_request as profile
from tfrun.job import reports, unmatched_call
from tfrun.job.errors import TfrunError
from tfrun.job.exits import ExitStatus
from tfrun.job.settings import WorkerSettings
from tfrun.job.spec import JobSpec
from tfrun.process import progress, stacks

START_POLL_SECONDS = 0.5  # to look at who has begun to wait in the workers' start

Send = Callable[[wire.Message], None]


class WorkerGroup:
    """Starts a round's workers and says what becomes of them, always with the round's number.

    Attributes:
      number: the round's.
      ports: those that are reserved for its workers.
      workers, starts, ended_for, over, world_size: see `hang_watch.Watched`.
    """

    def __init__(
        self,
        number: int,
        spec: JobSpec,
        *,
        logs: Path,
        environment: Mapping[str, str],
        settings: WorkerSettings,
        spawner: Spawner,
        ends: ProcessEnds,
        send: Send,
    ) -> None:
        self.number, self.spec = number, spec
        self._logs, self._environment = logs, environment
        self._settings, self._state = settings, Path(settings.state_dir)
        self._spawner, self._ends, self._send = spawner, ends, send
        self.ports: list[PortReservation] = []
        self._reserved: dict[str, PortReservation] = {}  # for those that stay
        self.workers: dict[str, WorkerProcess] = {}
        self._told: signal.Signals | None = None
        self._leaving = self._saving = self._released = self._alone = False
        self.starts: dict[str, StartWatch] = {}
        self.ended_for: dict[str, str] = {}  # why a worker that stood still was ended
        self.over: Mapping[str, int | None] = {}  # tasks whose scripts have ended before others
        self.world_size = 0  # workers of the round on all machines
        self._gpus: Mapping[str, Mapping[str, str]] = {}
        self._background = Background(self.on_notice)
        self._saved_or_not = asyncio.Event()  # the chief has told, or has ended

    async def start(self, tasks: Sequence[messages.StartTask]) -> None:
        """Starts the workers, and watches them.

        Or starts some of them again, in the place of those that have ended.
        """
        is_first = not self.workers
        self._expect(tasks)
        await asyncio.gather(*(self._start_worker(task) for task in tasks))
        if is_first:
            self._background.run(hang_watch.watch(self, self.spec.timeouts))

    def go_on(
        self,
        tasks: Sequence[messages.StartTask],
        take: Callable[[str], tuple[WorkerProcess, PortReservation | None] | None],
    ) -> None:
        """Gives processes that wait their places in this round, and starts those that are new.

        Args:
          tasks: all tasks of this machine.
          take: returns the process of a name, with the port that is reserved for it.
        """
        self._expect(tasks)
        for task in tasks:
            if not task.takes:
                self._background.run(self._start_worker(task))
            elif taken := take(task.takes):
                worker, port = taken
                self.ports += [port] if port else []
                self._give_place(worker, task)
            else:  # it has gone meanwhile
                status = ExitStatus(code=-signal.SIGKILL)
                self._tell_exit(task.task, time.time(), status, tail="", requested=False)
        self._background.run(hang_watch.watch(self, self.spec.timeouts))

    def _expect(self, tasks: Sequence[messages.StartTask]) -> None:
        sizes = (int(task.environment.get("WORLD_SIZE", 1)) for task in tasks)
        self.world_size = max(sizes, default=0)
        if not self._gpus:
            names = [task.task for task in tasks]
            self._gpus = share_gpus(
                visible_gpus(os.environ), names, others_come=self.spec.in_place == "on"
            )

    def _give_place(self, worker: WorkerProcess, task: messages.StartTask) -> None:
        name = task.task
        self.workers[name], self.starts[name] = worker, StartWatch(task.called, task.awaits)
        title = f"--- round {self.number}, in place ---"
        worker.becomes(name, self._log_of(name), self, title=title, show=task.show)
        if worker.pid is not None:
            self._send(messages.WorkerStarted(round=self.number, task=name, pid=worker.pid))
        if worker.end:
            return self.on_exit(worker, *worker.end)
        if not worker.tell(
            task_process.WORD, task_process.place(self.number, task, self._settings)
        ):
            worker.interrupt(signal.SIGKILL)  # it has not listened for long

    def _log_of(self, name: str) -> Path:
        return self._logs / f"{name.replace(':', '-')}.log"

    async def _start_worker(self, task: messages.StartTask) -> None:
        name = task.task
        title = f"--- round {self.number} ---" if self.number else ""
        if name in self.workers:
            title = "--- started again ---"
        self.starts[name] = StartWatch(task.called, task.awaits)
        self.ended_for.pop(name, None)
        worker = WorkerProcess(name, self._log_of(name), self, title=title)
        self.workers[name] = worker
        settings, environment, worker.gpus = self._settings, self._environment, self._gpus[name]
        try:
            await worker.start(
                self._spawner,
                task_process.new_process(task, self.spec, settings, environment, worker.gpus),
                show=task.show,
                muted=task.muted,
                terminal=task.terminal,
            )
        except TfrunError:
            return  # the zygote has died, which is reported for itself
        assert worker.pid is not None
        self._send(messages.WorkerStarted(round=self.number, task=name, pid=worker.pid))
        if self._saving:  # since it began to be started
            worker.say("save")
        if self.over:
            worker.say(unmatched_call.ENDED, self.over)
        if self._leaving:
            worker.leave()
        if self._released and worker.serves:
            worker.signal(signal.SIGKILL)
        if self._told:
            worker.signal(self._told)
        self._ends.watch(worker.pid, worker.has_ended)

    def take(self, name: str) -> tuple[WorkerProcess, PortReservation | None] | None:
        """Gives away a worker that waits for a place in the next round, with its port."""
        worker = self.workers.get(name)
        if worker is None or not worker.waits:
            return None
        del self.workers[name]
        return worker, self._reserved.pop(name, None)

    def close_ports(self) -> None:
        """Gives back the ports that are reserved here; servers that listen are not disturbed."""
        for port in (*self.ports, *self._reserved.values()):
            port.close()

    @property
    def is_leaving(self) -> bool:
        return self._leaving or self._told is not None

    def profile(self, request: profile.Request) -> None:
        """Has each worker trace some of its steps."""
        profile.write(self._state, request)
        for worker in self.workers.values():
            if not worker.serves:
                worker.say(profile.WORD)

    async def take_stacks(self, *, threads: bool) -> None:
        """Sends the Python stack of each worker, or those of all its threads."""
        workers = self.workers.values()
        await asyncio.gather(*(self._take_stacks(worker, threads) for worker in workers))

    async def _take_stacks(self, worker: WorkerProcess, threads: bool) -> None:
        path = stacks.path_of(self._state, str(worker.pid))
        text = await stacks.taken(path, worker.ask, threads=threads)
        self._send(messages.StacksTaken(round=self.number, task=worker.name, text=text))

    def release(self) -> None:
        """Lets the finished workers end, and ends the servers."""
        self._released = True
        for worker in self.workers.values():
            if worker.serves:  # for ever, unless told otherwise
                worker.signal(signal.SIGKILL)
            else:
                worker.say("release")

    def save(self) -> None:
        """Tells the workers that the training's state is wanted on disk."""
        self._saving = True
        for worker in self.workers.values():
            worker.say("save")

    def regroup(self) -> None:
        """Tells the workers that there are more machines."""
        for worker in self.workers.values():
            worker.say("regroup")

    def ended(self, tasks: Mapping[str, int | None]) -> None:
        """Tells the workers that go on whose scripts have ended."""
        self.over = tasks
        for worker in self.workers.values():
            if worker.name not in tasks and not worker.serves:
                worker.say(unmatched_call.ENDED, tasks)

    def parted(self, places: Mapping[str, str]) -> None:
        """Tells the workers, which wait in different collectives, where each is."""
        for name in places.keys() & self.workers.keys():
            self.workers[name].say(unmatched_call.PARTED, places)

    def leave(self) -> None:
        """Tells the workers that a peer of theirs has gone; and again that none may stay."""
        self._leaving = True
        for worker in self.workers.values():
            worker.leave()
        # One in place has what it has trained, and nothing of TensorFlow's to wait in.
        new = [worker for worker in self.workers.values() if not worker.in_place]
        self._kill_those_in_workers_start(new)

    def _kill_those_in_workers_start(self, workers: Collection[WorkerProcess]) -> None:
        """Ends who waits in the workers' start for a peer that does not come any more.

        In TensorFlow's own start it holds Python's lock, and hears nothing for seconds; and it has
        trained nothing yet that could be lost.
        """
        for worker in workers:
            reading = self.reading(worker)
            if reading and reading.phase is progress.Phase.WORKERS_START:
                worker.signal(signal.SIGKILL)

    async def stop(
        self,
        signum: signal.Signals,
        grace: float,
        names: Collection[str] = (),
        *,
        after: float = 0.0,
    ) -> None:
        """Signals the workers of these names, or all; SIGKILLs those still there after `grace`.

        Args:
          signum: the signal.
          grace: seconds.
          names: the workers' names; none means all.
          after: seconds that their scripts have before that, to end by themselves.
        """
        workers = [self.workers[name] for name in names or self.workers if name in self.workers]
        if not names:
            self._told = signum
        if after:
            await self._wait_for([worker for worker in workers if not worker.serves], after)
        for worker in workers:
            # One that has raised is leaving by itself and still runs its exit handlers.
            if not worker.raised or signum is signal.SIGKILL:
                worker.signal(signum)
        until = time.monotonic() + grace
        while any(not worker.exited.is_set() for worker in workers) and time.monotonic() < until:
            await self._wait_for(workers, min(START_POLL_SECONDS, until - time.monotonic()))
            self._kill_those_in_workers_start(workers)
        for worker in workers:
            worker.signal(signal.SIGKILL)

    async def gone(self, timeout: float) -> None:
        """Ends all workers and waits until they have been reaped."""
        self.kill()
        await self._wait_for(tuple(self.workers.values()), timeout)

    async def leave_alone(self) -> None:
        """Has the workers keep their state and leave, though no next round comes; ends the others.

        The launcher is gone: there is nobody who could decide anything.
        """
        scripts = {worker for worker in self.workers.values() if not worker.serves}
        if self.spec.ps:
            self.save()  # by the chief, who reads it from the servers, which may be elsewhere
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._saved_or_not.wait(), self.spec.timeouts.leave_grace)
            return await self.gone(self.spec.timeouts.stop_grace)
        self._alone = True
        self.regroup()  # between two steps, where nobody else is in them
        self.leave()
        for worker in scripts:
            if worker.waits:
                worker.leave()
        train = []
        for worker in scripts:
            if (reading := self.reading(worker)) and reading.step:
                train.append(worker)
            else:
                worker.signal(signal.SIGKILL)  # it has nothing to keep
        await self._wait_for(train, self.spec.timeouts.leave_grace)
        await self.gone(self.spec.timeouts.stop_grace)

    def kill(self) -> None:
        """SIGKILLs all workers, also those that are just being started."""
        self._told = signal.SIGKILL
        for worker in self.workers.values():
            worker.signal(signal.SIGKILL)

    def reading(self, worker: WorkerProcess) -> progress.Reading | None:
        return progress.read(progress.path_of(self._state, str(worker.pid)))

    @staticmethod
    async def _wait_for(workers: Collection[WorkerProcess], timeout: float) -> None:
        exits = [asyncio.create_task(worker.exited.wait()) for worker in workers]
        if exits:
            await asyncio.wait(exits, timeout=max(0.0, timeout))
        for waiting in exits:
            waiting.cancel()

    # --- the workers' news ------------------------------------------------------------------

    def on_output(self, task: str, stream: str, text: str) -> None:
        self._send(messages.Output(task=task, stream=stream, text=text))

    def on_report(self, task: str, report: reports.Report) -> None:
        if isinstance(report, reports.StateSaved | reports.StateNotSaved):
            self._saved_or_not.set()
        port = self._port_for(task) if isinstance(report, reports.Stayed) else 0
        if isinstance(report, reports.Stayed) and self._alone:
            self.workers[task].leave()  # there is nobody who could give it a place
        said = reports.encode(report)
        self._send(
            messages.WorkerReport(
                round=self.number, task=task, time=time.time(), report=said, port=port
            )
        )

    def _port_for(self, task: str) -> int:
        """Reserves a port for a worker that stays, before anybody asks; 0 where there is none."""
        try:
            self._reserved[task] = PortReservation(1)
        except TfrunError as error:
            self.on_notice(str(error))
            return 0
        return self._reserved[task].ports[0]

    def on_exit(self, worker: WorkerProcess, when: float, status: ExitStatus) -> None:
        if not worker.serves:
            self._saved_or_not.set()
        if status.code and (reading := self.reading(worker)) and reading.step:
            self.on_report(worker.name, reports.EndedAt(step=reading.step))
        tail = worker.tail
        if why := self.ended_for.get(worker.name):
            tail = f"{tail}\n{why}".strip()  # what is told of a failure begins at its end
        requested = worker.was_told_to(status)
        self._tell_exit(worker.name, when, status, tail=tail, requested=requested)
        for folder_of in (progress.path_of, stacks.path_of):
            folder_of(self._state, str(worker.pid)).unlink(missing_ok=True)

    def _tell_exit(
        self, task: str, when: float, status: ExitStatus, *, tail: str, requested: bool
    ) -> None:
        self._send(
            messages.WorkerExited(
                round=self.number,
                task=task,
                time=when,
                code=status.code,
                out_of_memory=status.out_of_memory,
                requested=requested,
                tail=tail,
            )
        )

    def on_notice(self, text: str) -> None:
        self._send(messages.Notice(text=text))
