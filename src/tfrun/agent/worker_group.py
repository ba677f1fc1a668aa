"""Starts, watches and ends the workers of one round on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tfrun.agent import hangs
from tfrun.agent.gpus import share_gpus, visible_gpus
from tfrun.agent.spawn import Spawner
from tfrun.agent.worker_process import WorkerProcess
from tfrun.agent.workers_start import StartWatch
from tfrun.control.protocol import messages, wire
from tfrun.job import profile_request as profile
from tfrun.job import reports, unmatched_call
from tfrun.job.errors import TfrunError
from tfrun.job.exits import ExitStatus
from tfrun.job.settings import WorkerSettings
from tfrun.job.spec import JobSpec
from tfrun.process import progress, stacks
from tfrun.process.memory import oom_kills

START_POLL_SECONDS = 0.5  # to look at who has begun to wait in the workers' start
NOT_ENDED = "a worker stands still, and cannot be ended"
KEEP_SECONDS = 5.0  # for a worker that stands still, to keep its state

Send = Callable[[wire.Message], None]


class WorkerGroup:
    """Starts a round's workers and says what becomes of them, always with the round's number."""

    def __init__(
        self,
        number: int,
        spec: JobSpec,
        *,
        logs: Path,
        environment: Mapping[str, str],
        settings: WorkerSettings,
        spawner: Spawner,
        send: Send,
    ) -> None:
        self.number, self.spec = number, spec
        self._logs, self._environment = logs, environment
        self._settings, self._state = settings, Path(settings.state_dir)
        self._spawner, self._send = spawner, send
        self._workers: dict[str, WorkerProcess] = {}
        self._by_pid: dict[int, WorkerProcess] = {}
        self._early_exits: dict[int, int] = {}
        self._oom_kills = oom_kills()
        self._told: signal.Signals | None = None
        self._leaving = self._saving = self._released = False
        self._starts: dict[str, StartWatch] = {}
        self._ended_for: dict[str, str] = {}  # why a worker that stood still was ended
        self._over: Mapping[str, int | None] = {}  # tasks whose scripts have ended before others
        self._world_size = 0  # workers of the round on all machines
        self._gpus: Mapping[str, Mapping[str, str]] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._saved_or_not = asyncio.Event()  # the chief has told, or has ended
        spawner.on_exit = self._on_pid_exit

    async def start(self, tasks: Sequence[messages.StartTask]) -> None:
        """Starts the workers, and watches them.

        Or starts some of them again, in the place of those that have ended.
        """
        is_first = not self._workers
        sizes = (int(task.environment.get("WORLD_SIZE", 1)) for task in tasks)
        self._world_size = max(sizes, default=0)
        if not self._gpus:
            names = [task.task for task in tasks]
            self._gpus = share_gpus(visible_gpus(os.environ), names)
        await asyncio.gather(*(self._start_worker(task, self._gpus[task.task]) for task in tasks))
        if is_first:
            self._in_background(self._watch())

    async def _start_worker(self, task: messages.StartTask, gpus: Mapping[str, str]) -> None:
        name = task.task
        log = self._logs / f"{name.replace(':', '-')}.log"
        # What a worker of that name has shown in an earlier round is not this one's.
        for path in (progress.path_of(self._state, name), stacks.path_of(self._state, name)):
            path.unlink(missing_ok=True)
        title = f"--- round {self.number} ---" if self.number else ""
        if name in self._workers:
            title = "--- started again ---"
        self._starts[name] = StartWatch(task.called, task.awaits)
        self._ended_for.pop(name, None)
        worker = WorkerProcess(name, log, self, title=title)
        self._workers[name] = worker
        try:
            await worker.start(
                self._spawner,
                {
                    "runs": task.runs,
                    "program": asdict(self.spec.program),
                    "environment": {
                        **self._environment,
                        **gpus,
                        **task.environment,
                        **replace(self._settings, task=name, **task.settings).variables(),
                    },
                },
                show=task.show,
                muted=task.muted,
                terminal=task.terminal,
            )
        except TfrunError:
            return  # the zygote has died, which is reported for itself
        assert worker.pid is not None
        self._by_pid[worker.pid] = worker
        self._send(messages.WorkerStarted(round=self.number, task=name, pid=worker.pid))
        if self._saving:  # since it began to be started
            worker.say("save")
        if self._over:
            worker.say(unmatched_call.ENDED, self._over)
        if self._leaving:
            worker.leave()
        if self._released and worker.serves:
            worker.signal(signal.SIGKILL)
        if self._told:
            worker.signal(self._told)
        if worker.pid in self._early_exits:
            self._on_pid_exit(worker.pid, self._early_exits.pop(worker.pid))

    async def _watch(self) -> None:
        """Has each worker that stands still show where, and ends it: the next round replaces it."""
        timeouts = self.spec.timeouts
        asked: dict[str, hangs.Asked] = {}
        stopped: dict[str, hangs.Stopped] = {}
        ended: dict[str, int] = {}  # how often one was seen that has got SIGKILL
        while True:
            await asyncio.sleep(min(1.0, timeouts.hang_timeout / 4))
            readings = {
                name: reading
                for name, worker in self._workers.items()
                if not worker.exited.is_set() and (reading := self._reading(worker))
            }
            if self._leaving or self._told:
                return
            for name, reading in readings.items():
                if reading.phase is progress.Phase.WORKERS_START:
                    self._starts[name].look(reading.since, self.on_notice)
                    self._end_if_in_vain(self._workers[name])
            now, alone = time.monotonic(), len(readings) == self._world_size
            for name in hangs.wondered_about(readings, now=now, timeouts=timeouts):
                self._workers[name].say(progress.LOOK)
                asked[name] = hangs.asked_again(asked.get(name), readings[name], now)
            answered = hangs.have_answered(asked, readings, now)
            hung = hangs.hung(readings, now=now, timeouts=timeouts, alone=alone, answered=answered)
            ended = {
                name: ended.get(name, 0) + 1
                for name, worker in self._workers.items()
                if name in self._ended_for and not worker.exited.is_set()
            }
            hung = {name: seconds for name, seconds in hung.items() if name not in ended}
            for name in (name for name, looks in ended.items() if looks == hangs.ENDED_LOOKS):
                # Its peers wait for it, and SIGKILL does nothing: the round ends without it.
                self._workers[name].fails("UnavailableError", NOT_ENDED)
            # Also one that shows no progress, as a script without a strategy does not.
            stopped = {
                name: hangs.stopped_still(stopped.get(name), used, now)
                for name, worker in self._workers.items()
                if (used := worker.stopped_at) is not None
            }
            for name, seen in stopped.items():
                if name not in {*hung, *ended} and seen.is_to_be_replaced(
                    timeouts, now=now, alone=self._world_size == 1
                ):
                    text = hangs.told_of_stopped(self._starts[name].called, now - seen.since)
                    self._ended_for[name] = text
                    self.on_notice(text)
                    self._workers[name].interrupt(signal.SIGKILL)
            for name, seconds in hung.items():
                text = hangs.told(self._starts[name].called, readings[name], seconds)
                if readings[name].phase is progress.Phase.WORKERS_START:
                    text += self._starts[name].end()
                self._ended_for[name] = text
                self.on_notice(text)
            await asyncio.gather(*(self._end_hung(self._workers[name]) for name in hung))

    def _end_if_in_vain(self, worker: WorkerProcess) -> None:
        """Ends who waits in the workers' start, and hears nothing, for one that has ended."""
        never = [task for task, last in self._over.items() if last is None]
        if never and not worker.raised:
            reason = unmatched_call.ended(never)
            error = unmatched_call.error("the workers' start", reason, where="")
            worker.fails(type(error).__name__, str(error))
            worker.interrupt(signal.SIGKILL)

    @staticmethod
    async def _end_hung(worker: WorkerProcess) -> None:
        worker.interrupt(stacks.LOG_SIGNAL)
        worker.say("keep")
        await asyncio.sleep(stacks.LOG_SECONDS)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(worker.kept.wait(), KEEP_SECONDS)
        worker.interrupt(signal.SIGKILL)

    def profile(self, request: profile.Request) -> None:
        """Has each worker trace some of its steps."""
        profile.write(self._state, request)
        for worker in self._workers.values():
            if not worker.serves:
                worker.say(profile.WORD)

    async def take_stacks(self, *, threads: bool) -> None:
        """Sends the Python stack of each worker, or those of all its threads."""
        workers = self._workers.values()
        await asyncio.gather(*(self._take_stacks(worker, threads) for worker in workers))

    async def _take_stacks(self, worker: WorkerProcess, threads: bool) -> None:
        path = stacks.path_of(self._state, worker.name)
        text = await stacks.taken(path, worker.ask, threads=threads)
        self._send(messages.StacksTaken(round=self.number, task=worker.name, text=text))

    def release(self) -> None:
        """Lets the finished workers end, and ends the servers."""
        self._released = True
        for worker in self._workers.values():
            if worker.serves:  # for ever, unless told otherwise
                worker.signal(signal.SIGKILL)
            else:
                worker.say("release")

    def save(self) -> None:
        """Tells the workers that the training's state is wanted on disk."""
        self._saving = True
        for worker in self._workers.values():
            worker.say("save")

    def regroup(self) -> None:
        """Tells the workers that there are more machines."""
        for worker in self._workers.values():
            worker.say("regroup")

    def ended(self, tasks: Mapping[str, int | None]) -> None:
        """Tells the workers that go on whose scripts have ended."""
        self._over = tasks
        for worker in self._workers.values():
            if worker.name not in tasks and not worker.serves:
                worker.say(unmatched_call.ENDED, tasks)

    def parted(self, places: Mapping[str, str]) -> None:
        """Tells the workers, which wait in different collectives, where each is."""
        for name in places.keys() & self._workers.keys():
            self._workers[name].say(unmatched_call.PARTED, places)

    def leave(self) -> None:
        """Tells the workers that a peer of theirs has gone."""
        self._leaving = True
        for worker in self._workers.values():
            worker.leave()
        self._kill_those_in_workers_start(self._workers.values())

    def _kill_those_in_workers_start(self, workers: Collection[WorkerProcess]) -> None:
        """Ends who waits in the workers' start for a peer that does not come any more.

        In TensorFlow's own start it holds Python's lock, and hears nothing for seconds; and it has
        trained nothing yet that could be lost.
        """
        for worker in workers:
            reading = self._reading(worker)
            if reading and reading.phase is progress.Phase.WORKERS_START:
                worker.signal(signal.SIGKILL)

    async def stop(self, signum: signal.Signals, grace: float, names: Collection[str] = ()) -> None:
        """Signals the workers of these names, or all; SIGKILLs those still there after `grace`.

        Args:
          signum: the signal.
          grace: seconds.
          names: the workers' names; none means all.
        """
        workers = [self._workers[name] for name in names or self._workers if name in self._workers]
        if not names:
            self._told = signum
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
        await self._wait_for(tuple(self._workers.values()), timeout)

    async def leave_alone(self) -> None:
        """Has the workers keep their state and leave, though no next round comes; ends the others.

        The launcher is gone: there is nobody who could decide anything.
        """
        scripts = {worker for worker in self._workers.values() if not worker.serves}
        if self.spec.ps:
            self.save()  # by the chief, who reads it from the servers, which may be elsewhere
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._saved_or_not.wait(), self.spec.timeouts.leave_grace)
            return await self.gone(self.spec.timeouts.stop_grace)
        self.regroup()  # between two steps, where nobody else is in them
        self.leave()
        train = []
        for worker in scripts:
            if (reading := self._reading(worker)) and reading.step:
                train.append(worker)
            else:
                worker.signal(signal.SIGKILL)  # it has nothing to keep
        await self._wait_for(train, self.spec.timeouts.leave_grace)
        await self.gone(self.spec.timeouts.stop_grace)

    def kill(self) -> None:
        """SIGKILLs all workers, also those that are just being started."""
        self._told = signal.SIGKILL
        for worker in self._workers.values():
            worker.signal(signal.SIGKILL)

    def orphaned(self) -> None:
        """Takes the news that the zygote has died, and with it all its children."""
        for pid in tuple(self._by_pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._on_pid_exit(pid, signal.SIGKILL)

    def _reading(self, worker: WorkerProcess) -> progress.Reading | None:
        return progress.read(progress.path_of(self._state, worker.name))

    @staticmethod
    async def _wait_for(workers: Collection[WorkerProcess], timeout: float) -> None:
        exits = [asyncio.create_task(worker.exited.wait()) for worker in workers]
        if exits:
            await asyncio.wait(exits, timeout=max(0.0, timeout))
        for waiting in exits:
            waiting.cancel()

    # --- the workers' news ------------------------------------------------------------------

    def _on_pid_exit(self, pid: int, status: int) -> None:
        worker = self._by_pid.pop(pid, None)
        if worker is None:
            self._early_exits[pid] = status
            return
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        memory = killed and oom_kills() > self._oom_kills
        self._oom_kills = oom_kills()
        exited = ExitStatus.from_wait_status(status, out_of_memory=memory)
        self._in_background(worker.ended(exited))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def on_output(self, task: str, stream: str, text: str) -> None:
        self._send(messages.Output(task=task, stream=stream, text=text))

    def on_report(self, task: str, report: reports.Report) -> None:
        if isinstance(report, reports.StateSaved | reports.StateNotSaved):
            self._saved_or_not.set()
        said = reports.encode(report)
        self._send(
            messages.WorkerReport(round=self.number, task=task, time=time.time(), report=said)
        )

    def on_exit(self, worker: WorkerProcess, when: float, status: ExitStatus) -> None:
        if not worker.serves:
            self._saved_or_not.set()
        if status.code and (reading := self._reading(worker)) and reading.step:
            self.on_report(worker.name, reports.EndedAt(step=reading.step))
        tail = worker.tail
        if why := self._ended_for.get(worker.name):
            tail = f"{tail}\n{why}".strip()  # what is told of a failure begins at its end
        self._send(
            messages.WorkerExited(
                round=self.number,
                task=worker.name,
                time=when,
                code=status.code,
                out_of_memory=status.out_of_memory,
                requested=worker.was_told_to(status),
                tail=tail,
            )
        )

    def on_notice(self, text: str) -> None:
        self._send(messages.Notice(text=text))
