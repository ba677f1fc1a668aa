"""The agent's side of one worker: its output, its channel, its end."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import json
import os
import pty
import signal
import socket
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tfrun.agent.output_streams import OutputPump, WorkerLog
from tfrun.agent.spawn import Spawner
from tfrun.job import reports
from tfrun.job.exits import ExitStatus
from tfrun.job.first_failure import is_peer_error
from tfrun.job.reports import Report
from tfrun.process import lineage

DRAIN_SECONDS = 0.5


class Listener(Protocol):
    """Who hears of a worker's life."""

    def on_output(self, task: str, stream: str, text: str) -> None: ...
    def on_report(self, task: str, report: Report) -> None: ...
    def on_exit(self, worker: WorkerProcess, when: float, status: ExitStatus) -> None: ...
    def on_notice(self, text: str) -> None: ...


class WorkerProcess:
    """One worker process of one round.

    Attributes:
      name: the task's name, "worker:1".
      pid: its process, also its process group's; None before it has started.
      serves: True for a server, which has no end of its own.
      kept: set once it has kept what it could, after `keep`.
      raised: True once it has reported an exception and is leaving by itself.
      waits: it is out of its round, or a successor that is ready, and waits for a place.
      in_place: it was given its place in this round, and has lived through another one before.
      gpus: the variables that say which GPUs it sees.
      end: when it has ended, and how; None before.
    """

    def __init__(self, name: str, log: Path, listener: Listener, *, title: str = "") -> None:
        """Args:
        name: the task's name.
        log: where its output goes; appended to.
        listener: who hears of it.
        title: a line that separates it in the log from the round before.
        """
        self.name = name
        self.pid: int | None = None
        self.serves = False
        self.raised = self.waits = self.in_place = False
        self.gpus: Mapping[str, str] = {}
        self.end: tuple[float, ExitStatus] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._sent: set[int] = set()
        self.exited = asyncio.Event()
        self.kept = asyncio.Event()
        self._listener = listener
        self._log = WorkerLog(log, listener.on_notice)
        if title:
            self._log.write(f"\n{title}\n".encode())
        self._pumps: list[OutputPump] = []
        self._line: socket.socket | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(
        self,
        spawner: Spawner,
        task: Mapping[str, Any],
        *,
        show: bool,
        muted: bool = False,
        terminal: Sequence[int] | None,
    ) -> None:
        """Starts the process.

        Args:
          spawner: what makes the process.
          task: what `worker.bootstrap.live` takes.
          show: pass its output on to the listener, besides the log.
          muted: not before it has restored its state and begins with what is new.
          terminal: rows and columns, when its standard output is to look like a terminal.
        """
        self.serves = task["runs"] == "server"
        out_ours, out_theirs = _terminal(*terminal) if terminal else os.pipe()
        err_ours, err_theirs = os.pipe()
        self._line, line_theirs = socket.socketpair()
        fds = (out_theirs, err_theirs, line_theirs.fileno())
        try:
            self.pid = await spawner.spawn(task, fds)
        except BaseException:
            for fd in (out_ours, err_ours):
                os.close(fd)
            self._close()
            self.exited.set()
            raise
        else:
            for fd, stream, hide in ((out_ours, "stdout", False), (err_ours, "stderr", True)):
                shown = functools.partial(self._show, stream)
                self._pumps.append(
                    OutputPump(fd, self._log, shown if show else None, hide_noise=hide, muted=muted)
                )
            self._reading = asyncio.create_task(self._read_reports())
        finally:
            os.close(out_theirs)
            os.close(err_theirs)
            line_theirs.close()

    def _show(self, stream: str, text: str) -> None:
        self._listener.on_output(self.name, stream, text)

    def becomes(self, name: str, log: Path, listener: Listener, *, title: str, show: bool) -> None:
        """Takes another place: from now on it is this task, in another round.

        Args:
          name: the task's name.
          log: where its output goes from now on.
          listener: who hears of it.
          title: a line that separates it in the log from what was there before.
          show: pass its output on to the listener, besides the log.
        """
        self.name, self._listener = name, listener
        self.waits, self.raised, self.in_place = False, False, True
        self.kept.clear()
        before, self._log = self._log, WorkerLog(log, listener.on_notice)
        self._log.write(f"\n{title}\n".encode())
        for pump, stream in zip(self._pumps, ("stdout", "stderr"), strict=True):
            pump.turn(self._log, functools.partial(self._show, stream) if show else None)
        before.close()
        if self.end:  # it has gone already, and leaves nothing more to be closed
            self._log.close()

    def signal(self, signum: int) -> None:
        """Signals the worker and all that it started."""
        if self.pid is not None and not self.exited.is_set():
            self._sent.add(signum)
            if not lineage.kill_group(self.pid, signum):
                self.ask(signum)  # forked a moment ago, it has not come to `setsid` yet

    def interrupt(self, signum: int) -> None:
        """Signals the worker's own process, for a fault of its own: its end then is news.

        What it says from now on is in its log only.
        """
        self._pumps[1].hide()
        self.ask(signum)

    def ask(self, signum: int) -> None:
        """Signals the worker's own process, which answers and goes on."""
        if self.pid is not None and not self.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    @property
    def stopped_at(self) -> float | None:
        """Where somebody has stopped it (SIGSTOP): the processor seconds that it had used."""
        runs = self.pid is not None and not self.exited.is_set()
        return lineage.stopped_at(self.pid) if runs and self.pid else None

    def fails(self, kind: str, message: str) -> None:
        """Reports an exception for a worker that cannot raise it."""
        self._take(reports.Error(type=kind, message=message, traceback=message))

    def say(self, word: str, of: Mapping[str, Any] | None = None) -> None:
        """Says a word of `process.channel` to it, with what belongs to it."""
        self.tell(word, of)

    def tell(self, word: str, of: Mapping[str, Any] | None = None) -> bool:
        """As `say`; False where not all of it has found room: it has not listened for long."""
        if self._line is None:
            return False
        data = f"{word if of is None else f'{word} {json.dumps(of)}'}\n".encode()
        try:
            return self._line.send(data, socket.MSG_DONTWAIT) == len(data)
        except OSError:
            return False

    def leave(self) -> None:
        """Tells it that a peer has gone; who has noticed is leaving already."""
        if not self.raised:
            self.say("leave")

    def has_ended(self, status: ExitStatus) -> None:
        """As `ended`, in the background."""
        self._ending = asyncio.create_task(self.ended(status))

    async def ended(self, status: ExitStatus) -> None:
        """Takes the news that the process has ended: collects what it left and tells."""
        when = time.time()
        assert self.pid is not None
        lineage.kill_group(self.pid, 9)
        streams = [asyncio.create_task(pump.closed.wait()) for pump in self._pumps]
        # A child in another session may hold a stream open: what came so far is enough.
        await asyncio.wait(streams, timeout=DRAIN_SECONDS)
        for waiting in streams:
            waiting.cancel()
        if self._reading:
            await asyncio.wait([self._reading], timeout=DRAIN_SECONDS)
        self._close()
        self.end = (when, status)
        self.exited.set()
        self._listener.on_exit(self, when, status)

    def was_told_to(self, status: ExitStatus) -> bool:
        """True when it ended by a signal that was sent to it here."""
        return -status.code in self._sent

    @property
    def tail(self) -> str:
        """The last lines of its standard error, without TensorFlow's noise."""
        return self._pumps[1].tail

    def _take(self, report: Report) -> None:
        match report:
            case reports.Error():
                self.raised = True
                if is_peer_error(report.type, report.message):
                    self._pumps[1].hide()
                    self.say("go")
            case reports.WorkerPreempted() if signal.SIGTERM in self._sent:
                # It is ours, and means what it means without a handler.
                return self.signal(signal.SIGKILL)
            case reports.Resumed() | reports.FirstStep():
                for pump in self._pumps:
                    pump.unmute()
                if isinstance(report, reports.Resumed):  # it waits, so that nothing new is
                    self.say("go")  # taken for old
            case reports.Stayed() | reports.Ready():
                self.waits = True
            case reports.Kept():
                return self.kept.set()
            case reports.WorkerNotice(text=text):
                self._listener.on_notice(f"{self.name.replace(':', ' ')}: {text}")
        self._listener.on_report(self.name, report)

    def _close(self) -> None:
        for pump in self._pumps:
            pump.close()
        if self._reading:
            self._reading.cancel()
        if self._line:
            self._line.close()
        self._log.close()

    async def _read_reports(self) -> None:
        assert self._line is not None
        reader, writer = await asyncio.open_connection(sock=self._line.dup(), limit=1 << 20)
        complained = False
        try:
            while True:
                try:
                    if not (line := await reader.readline()):
                        return
                    report = reports.decode(json.loads(line))
                except (ValueError, RecursionError) as error:
                    # The line belongs to the user's process, which may write anything to it.
                    if not complained:
                        self._listener.on_notice(f"{self.name}: a report cannot be read: {error}")
                    complained = True
                else:
                    self._take(report)
        except ConnectionError:
            pass  # the process has ended with something unread
        finally:
            writer.close()


def _terminal(rows: int, columns: int) -> tuple[int, int]:
    """Opens a pseudo-terminal that leaves line ends as they are; returns (ours, theirs)."""
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.ONLCR
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    return ours, theirs
