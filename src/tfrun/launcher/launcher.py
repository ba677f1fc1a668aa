"""Runs a job from its specification to its exit code; tells who is missing while a round forms."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from tfrun.agent.settings import AgentSettings
from tfrun.control import remote_logs, user_requests
from tfrun.control.controller import Controller
from tfrun.control.placement import Whereabouts
from tfrun.control.round_runner import RoundRunner
from tfrun.control.rounds.after_failure import lacks_machines
from tfrun.control.rounds.model import Round, State
from tfrun.control.server import ControlServer
from tfrun.control.view import View
from tfrun.job import control_contact
from tfrun.job.errors import UsageError
from tfrun.job.exits import EXIT_INTERRUPTED, EXIT_PREEMPTED
from tfrun.job.first_failure import Outcome
from tfrun.launcher import health
from tfrun.launcher.backend import Backend, Job
from tfrun.launcher.local.backend import LocalBackend
from tfrun.observe.access import Access
from tfrun.observe.events import EventLog
from tfrun.observe.failure_report import end_of
from tfrun.observe.monitor import Monitor
from tfrun.observe.page_server import WatchRoutes

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERVAL_SECONDS = 5.0  # from telling to telling who is missing
MAX_LINES = 10  # of it at once


async def run_job(
    job: Job,
    events: EventLog,
    view: View,
    *,
    window: tuple[int, int] | None = None,
    monitor: Monitor | None = None,
    page: bool = False,
) -> Outcome:
    """Runs the job to its end; leaves no process behind.

    Args:
      job: the job.
      events: the job's event log.
      view: shows output and progress.
      window: rows and columns, when the chief's output goes to a terminal.
      monitor: what people who look at the job from elsewhere are shown; by default nobody can.
      page: say where the job's page is.
    """
    spec, backend, door = job.spec, job.backend, job.door
    token = door.token or secrets.token_urlsafe(32)
    runner = RoundRunner(spec, job.plan, events, view, backend.whereabouts, window)
    controller = Controller(runner, monitor)
    watch, more, status_token = None, (), secrets.token_urlsafe(32)
    if monitor:
        # What comes over SSH's forwarded ports seems to be our own user's as well.
        access = Access(status_token, knows_users=isinstance(backend, LocalBackend))
        watch = WatchRoutes(Path(spec.run_dir), lambda heat: monitor.view(heat=heat), access)
        more = user_requests.routes(controller, monitor)
    server = ControlServer(
        controller, token, door.desk and door.desk(controller), watch=watch, more=more
    )
    try:
        shows = door.certificate and door.certificate.context
        await server.start(backend.listen_host, door.port, shows)
    except OSError as error:
        await server.close()
        raise _cannot_listen(backend.listen_host, door.port, error) from None
    reached = contextlib.nullcontext()
    if watch:
        where = control_contact.Contact(
            host=socket.gethostname(),
            pid=os.getpid(),
            address=backend.listen_host,
            port=server.port,
            token=status_token,
            tls=Path(door.certificate.cert).read_text() if door.certificate else None,
        )
        reached = control_contact.shown(Path(spec.run_dir), where)
        if page:
            view.notice(f"the job's page: {where.link(watch.access.new_key())}")
    mark = remote_logs.marked(Path(spec.run_dir, "logs"), token)
    loop = asyncio.get_running_loop()
    for signum in SIGNALS:
        loop.add_signal_handler(signum, controller.interrupt, signum.name)
    watching: list[asyncio.Task[None]] = []
    try:
        async with health.served(job.health):
            with mark, reached:
                controller.start()
                await backend.start(server.port, AgentSettings(spec=spec, token=token))
                watching = [
                    asyncio.create_task(_watch(backend, controller)),
                    asyncio.create_task(tell_who_is_missing(controller, backend.whereabouts, view)),
                ]
                await controller.runner.ended.wait()
                # The connections stay until the agents have read the last message and closed them.
                await backend.close(spec.timeouts.agent_exit)
                outcome = _outcome(controller, job)
                # Before those who look are let go: it is the last that they see.
                events.add("job_ended", **end_of(outcome))
    finally:
        for task in watching:
            task.cancel()
        with contextlib.suppress(ProcessLookupError):
            await backend.close(0)
        await server.close()
        for signum in SIGNALS:
            loop.remove_signal_handler(signum)
    return outcome


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


async def tell_who_is_missing(controller: Controller, known: Whereabouts, view: View) -> None:
    """Shows a line for each missing agent every few seconds, whenever a round waits for some.

    The agent of a local job, of which nothing is known, is never far and not worth a line.
    """
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        runner = controller.runner
        if known.waiting and runner.waited >= INTERVAL_SECONDS / 2:
            for line in missing_lines(runner.round, known.waiting, runner.waited):
                view.notice(line)


def missing_lines(round: Round, waiting: Mapping[str, str], seconds: float) -> list[str]:
    """Returns one line for each agent that the round still waits for, ten at most.

    Args:
      round: the round.
      waiting: why an agent has not joined, as far as that is known.
      seconds: since when the cluster has been forming.
    """
    if round.state is State.JOINING:
        there = round.joined
        why = {agent: waiting.get(agent, "its agent has not joined") for agent in round.agents}
    elif round.state is State.PREPARING:
        there = frozenset(round.ports)
        why = dict.fromkeys(round.agents, "TensorFlow is being imported there")
    else:
        return []
    missing = sorted(round.agents - there)
    lines = [f"waiting for {agent} ({seconds:.0f} s): {why[agent]}" for agent in missing]
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"waiting for {len(lines) - MAX_LINES} more hosts"]
    return lines


def _is_requeued(job: Job, round: Round) -> bool:
    """True when the scheduler has to find other machines: what is trained is saved, or it tries.

    Where nothing was, which may be so again and again, it tries no more often than a round does.
    """
    if job.requeued is None or not lacks_machines(round):
        return False
    return round.saved_step is not None or job.requeued < job.spec.max_restarts


def _outcome(controller: Controller, job: Job) -> Outcome:
    round = controller.runner.round
    cause, restarts = round.root_cause, controller.runner.recovery.restarts.total
    ended = partial(Outcome, restarts=restarts, interrupted=round.interrupted)
    if round.preempted:
        return ended(exit_code=EXIT_PREEMPTED, preempted=True, saved_step=round.saved_step)
    if cause and controller.runner.gave_up:
        cause = replace(cause, code="TFRUN-405", in_a_row=job.spec.max_restarts)
    if round.interrupted and not cause:
        number = signal.Signals[round.interrupted].value
        code = EXIT_INTERRUPTED if number == signal.SIGINT else 128 + number
        return ended(exit_code=code, unsaved=round.unsaved)
    if cause is None:
        doubts = tuple(map(str, controller.doubts.told))
        return ended(exit_code=0, replaced=controller.runner.replaced, doubts=doubts)
    requeue = _is_requeued(job, round)
    code = cause.status.shell_code if cause.status and cause.status.code else 1
    others = sum(1 for task in round.exits if task != cause.task)
    differing = [t for agent, t in controller.differing.items() if agent in round.agents]
    differing += [controller.untested] if controller.untested else []
    return ended(
        exit_code=EXIT_PREEMPTED if requeue else code,
        cause=cause,
        others=others,
        saved_step=round.saved_step,
        unsaved=round.unsaved,
        requeue=requeue,
        differing=tuple(differing),
    )
