"""Runs a job from its specification to its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
from dataclasses import replace
from pathlib import Path

from tfrun.control import remote_logs
from tfrun.control.controller import Controller
from tfrun.control.server import ControlServer
from tfrun.control.view import View
from tfrun.job.errors import UsageError
from tfrun.job.exits import EXIT_INTERRUPTED, EXIT_PREEMPTED
from tfrun.job.failure import Outcome
from tfrun.launch.backend import Backend, Job
from tfrun.launch.missing import tell_who_is_missing
from tfrun.observe.events import EventLog

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_job(
    job: Job, events: EventLog, view: View, *, window: tuple[int, int] | None = None
) -> Outcome:
    """Runs the job to its end; leaves no process behind.

    Args:
      job: the job.
      events: the job's event log.
      view: shows output and progress.
      window: rows and columns, when the chief's output goes to a terminal.
    """
    spec, backend, door = job.spec, job.backend, job.door
    token = door.token or secrets.token_urlsafe(32)
    controller = Controller(
        spec, job.plan, events, view, window=window, whereabouts=backend.whereabouts
    )
    server = ControlServer(controller, token, door.desk and door.desk(controller))
    try:
        await server.start(backend.listen_host, door.port, door.tls)
    except OSError as error:
        await server.close()
        raise _cannot_listen(backend.listen_host, door.port, error) from None
    mark = remote_logs.marked(Path(spec.run_dir, "logs"), token)
    loop = asyncio.get_running_loop()
    for signum in SIGNALS:
        loop.add_signal_handler(signum, controller.interrupt, signum.name)
    watching: list[asyncio.Task[None]] = []
    try:
        with mark:
            controller.start()
            await backend.start(server.port, {"token": token, "spec": spec.to_json()})
            watching = [
                asyncio.create_task(_watch(backend, controller)),
                asyncio.create_task(tell_who_is_missing(controller, backend.whereabouts, view)),
            ]
            await controller.ended.wait()
            # The connections stay until the agents have read the last message and closed them.
            await backend.close(spec.timeouts.agent_exit)
    finally:
        for task in watching:
            task.cancel()
        with contextlib.suppress(ProcessLookupError):
            await backend.close(0)
        await server.close()
        for signum in SIGNALS:
            loop.remove_signal_handler(signum)
    return _outcome(controller)


def _cannot_listen(host: str, port: int, error: OSError) -> UsageError:
    return UsageError(
        "TFRUN-208",
        f"the control port cannot listen on {host!r}, port {port}: {error.strerror or error}",
        where="--listen",
        expected="an address of this machine and a free port",
        fix="Name another address or port",
    )


async def _watch(backend: Backend, controller: Controller) -> None:
    """An agent's end is seen by its process sooner than by its silence."""
    while True:
        end = await backend.agent_ended()
        controller.left(end.agent, f"its process ended: {end.how}")
        controller.never_joined(end.agent, end.how, end.code)


def _outcome(controller: Controller) -> Outcome:
    round, restarts = controller.round, controller.recovery.restarts.total
    cause = round.root_cause
    if round.preempted:
        return Outcome(
            exit_code=EXIT_PREEMPTED,
            interrupted=round.interrupted,
            preempted=True,
            saved_step=round.saved_step,
            restarts=restarts,
        )
    if cause and controller.gave_up:
        cause = replace(cause, code="TFRUN-405")
    if round.interrupted and not cause:
        number = signal.Signals[round.interrupted].value
        code = EXIT_INTERRUPTED if number == signal.SIGINT else 128 + number
        return Outcome(
            exit_code=code,
            interrupted=round.interrupted,
            unsaved=round.unsaved,
            restarts=restarts,
        )
    if cause is None:
        return Outcome(exit_code=0, restarts=restarts, replaced=controller.replaced)
    code = cause.status.shell_code if cause.status and cause.status.code else 1
    others = sum(1 for task in round.exits if task != cause.task)
    return Outcome(
        exit_code=code,
        cause=cause,
        others=others,
        interrupted=round.interrupted,
        saved_step=round.saved_step,
        restarts=restarts,
    )
