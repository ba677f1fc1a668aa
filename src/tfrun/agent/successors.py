"""Starts successors on this machine, and gives those that are ready to the round that takes them.

A successor runs the script beside the job until its step is traced. It belongs to no round: what it
prints is in its log, and how it ends is no failure of the job.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from tfrun.agent import task_process
from tfrun.agent.gpus import share_gpus, visible_gpus
from tfrun.agent.process_ends import ProcessEnds
from tfrun.agent.spawn import Spawner
from tfrun.agent.worker_process import WorkerProcess
from tfrun.cluster.ports import PortReservation
from tfrun.control.protocol import messages, wire
from tfrun.job import reports
from tfrun.job.errors import TfrunError
from tfrun.job.exits import ExitStatus
from tfrun.job.settings import WorkerSettings
from tfrun.job.spec import JobSpec
from tfrun.process import progress, stacks


class Successors:
    """The successors of one machine, by name, until each has a place."""

    def __init__(
        self, spec: JobSpec, logs: Path, workers: int, send: Callable[[wire.Message], None]
    ) -> None:
        """Args:
        spec: the job.
        logs: the directory of the logs.
        workers: how many workers the machine takes.
        send: sends the controller a message.
        """
        self._spec, self._logs, self._workers, self._send = spec, logs, workers, send
        self._each: dict[str, WorkerProcess] = {}
        self._ports: dict[str, PortReservation] = {}
        self._expected: set[str] = set()  # about to be started
        self._unwanted: set[str] = set()  # stopped, also those that are just being started
        self._state = Path()

    def expect(self, name: str) -> None:
        """Takes note of one that is about to be started, and may be stopped before."""
        self._expected.add(name)

    async def start(
        self,
        name: str,
        task: messages.StartTask,
        *,
        spawner: Spawner,
        ends: ProcessEnds,
        settings: WorkerSettings,
        environment: Mapping[str, str],
        others: Collection[Mapping[str, str]],
    ) -> None:
        """Starts a successor.

        Args:
          name: its name.
          task: the task that it is to become.
          spawner: what makes the process.
          ends: tells of its end.
          settings: those of all tasks of the machine.
          environment: likewise.
          others: the variables that say which GPUs the workers here see.
        """
        self._expected.discard(name)
        if name in self._unwanted:
            return self._unwanted.discard(name)
        log = self._logs / f"{task.task.replace(':', '-')}.log"
        worker = WorkerProcess(name, log, self, title=f"--- {name.replace(':', ' ')} ---")
        self._each[name], self._state = worker, Path(settings.state_dir)
        worker.gpus = self._free_gpus([*others, *(one.gpus for one in self._each.values())])
        start = task_process.new_process(task, self._spec, settings, environment, worker.gpus)
        try:
            await worker.start(spawner, start, show=False, terminal=None)
        except (TfrunError, OSError) as error:  # no descriptors are left, and the like
            self._each.pop(name, None)
            self._unwanted.discard(name)
            return self._tell_end(name, ExitStatus(code=1), str(error))
        assert worker.pid is not None
        self._send(messages.SuccessorStarted(successor=name, pid=worker.pid))
        if name in self._unwanted:
            worker.signal(signal.SIGKILL)
        ends.watch(worker.pid, worker.has_ended)

    def _free_gpus(self, used: Collection[Mapping[str, str]]) -> Mapping[str, str]:
        """Returns the share of a worker that is not there any more; else any."""
        names = [f"worker:{index}" for index in range(max(1, self._workers))]
        shares = list(share_gpus(visible_gpus(os.environ), names, others_come=True).values())
        return next((share for share in shares if share not in used), shares[0])

    def take(self, name: str) -> tuple[WorkerProcess, PortReservation | None] | None:
        """Gives away a successor that has a place, with its port; None when it has gone."""
        worker = self._each.pop(name, None)
        return (worker, self._ports.pop(name, None)) if worker else None

    def stop(self, names: Collection[str] = ()) -> None:
        """Ends these at once, or all."""
        here = {*self._each, *self._expected}
        for name in here & set(names) if names else here:
            self._unwanted.add(name)
            if worker := self._each.get(name):
                worker.signal(signal.SIGKILL)

    # --- their news -------------------------------------------------------------------------

    def on_output(self, task: str, stream: str, text: str) -> None:
        """Nobody sees what it prints, but for its log."""

    def on_report(self, task: str, report: reports.Report) -> None:
        if not isinstance(report, reports.Ready) or task in self._unwanted:
            return  # what it says otherwise it says of itself, and not of the job
        try:
            self._ports[task] = PortReservation(1)
        except TfrunError as error:
            self.on_notice(str(error))
            return self.stop([task])
        self._send(messages.SuccessorReady(successor=task, port=self._ports[task].ports[0]))

    def on_exit(self, worker: WorkerProcess, when: float, status: ExitStatus) -> None:
        self._each.pop(worker.name, None)
        if port := self._ports.pop(worker.name, None):
            port.close()
        for path_of in (progress.path_of, stacks.path_of):
            path_of(self._state, str(worker.pid)).unlink(missing_ok=True)
        if worker.name not in self._unwanted:
            self._tell_end(worker.name, status, worker.tail)
        self._unwanted.discard(worker.name)

    def _tell_end(self, name: str, status: ExitStatus, tail: str) -> None:
        self._send(
            messages.SuccessorExited(
                successor=name, code=status.code, out_of_memory=status.out_of_memory, tail=tail
            )
        )

    def on_notice(self, text: str) -> None:
        self._send(messages.Notice(text=text))
