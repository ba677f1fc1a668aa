"""A real controller, agents and workers without TensorFlow, for tests of rounds in place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tfrun.agent.settings import AgentSettings
from tfrun.control.controller import Controller
from tfrun.control.placement import Site, Whereabouts, make_plan
from tfrun.control.round_runner import RoundRunner
from tfrun.control.server import ControlServer
from tfrun.job.settings import STATE_DIR
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.job.timeouts import Timeouts
from tfrun.observe.events import EventLog, read_events
from tfrun.observe.terminal import Terminal

SECONDS = 60.0
AGENT = Path(__file__).with_name("toy_agent.py")
QUICK = Timeouts(
    **{"heartbeat_interval": 0.1, "heartbeat_timeout": 8.0, "settle": 0.2, "grow_after": 0.2},
    **{"interrupt_grace": 1.0, "stop_grace": 0.5},
)


class Told(Terminal):
    """What a person is shown."""

    def __init__(self, chief: str) -> None:
        super().__init__(prefix_all=False, chief=chief)
        self.notices: list[str] = []
        self.shown = ""

    def output(self, task: str, stream: str, text: str) -> None:
        self.shown += text

    def notice(self, text: str) -> None:
        self.notices.append(text)


@dataclass(kw_only=True)
class ToyJob:
    """A job that runs.

    Attributes:
      folder: of the files that its workers look at.
      agents: the processes of its agents, by name.
    """

    controller: Controller
    control: ControlServer
    spec: JobSpec
    log: Path
    folder: Path
    told: Told
    token: str
    slots: dict[str, int]
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def runner(self) -> RoundRunner:
        return self.controller.runner

    def start_agent(self, name: str) -> None:
        settings = AgentSettings(
            spec=self.spec,
            token=self.token,
            agent=name,
            workers=self.slots[name],
            url=f"http://127.0.0.1:{self.control.port}",
            attempt=len(self.of("agent_joined")),
        )
        here = Path(__file__).parent
        if before := self.agents.get(name):
            self.reap(before)
        environment = {k: v for k, v in os.environ.items() if k != STATE_DIR}
        process = subprocess.Popen(
            [sys.executable, str(AGENT)],
            stdin=subprocess.PIPE,
            env={**environment, "TOY": str(self.folder), "PYTHONPATH": str(here)},
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(settings.to_line())
        process.stdin.flush()
        self.agents[name] = process

    @staticmethod
    def reap(agent: subprocess.Popen[bytes]) -> None:
        """Waits for an agent that has no launcher any more."""
        assert agent.stdin is not None
        with contextlib.suppress(OSError):
            agent.stdin.close()
        agent.wait(30)

    def of(self, kind: str, **values: Any) -> list[dict[str, Any]]:
        """The events of a kind, in which these values stand."""
        events = [event for event in read_events(self.log) if event["event"] == kind]
        return [e for e in events if all(e.get(k) == v for k, v in values.items())]

    def life(self, what: str = "", **values: Any) -> list[dict[str, Any]]:
        """What the workers have come to."""
        path = self.folder / "life"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]  # one is being written
        found = [one for one in found if what in ("", one["what"])]
        return [one for one in found if all(one.get(k) == v for k, v in values.items())]

    def pid(self, task: str) -> int:
        """The process of a task in the newest round."""
        return self.of("worker_started", task=task, round=self.runner.round.number)[-1]["pid"]

    async def until(self, condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
        """Waits until something is true, and returns it."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, (self.told.notices, read_events(self.log)[-20:])
            await asyncio.sleep(0.005)
        return found

    async def runs(self, workers: int, number: int | None = None) -> None:
        """Waits until so many workers of one round have made a step."""

        def do() -> bool:
            now = self.runner.round.number if number is None else number
            stepped = {one["rank"] for one in self.life("steps", round=now, size=workers)}
            told = self.of(
                "worker_started", round=now
            )  # which may come later than what is in files
            here = self.runner.round.number == now
            return here and len(stepped) == workers and len(told) >= workers

        await self.until(do)

    def kill(self, *tasks: str) -> list[int]:
        pids = [self.pid(task) for task in tasks]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return pids

    async def finish(self) -> None:
        (self.folder / "finish").touch()
        await asyncio.wait_for(self.runner.ended.wait(), SECONDS)

    def processes(self) -> set[int]:
        """The workers and successors that are there."""
        found = set[int]()
        for agent in self.agents.values():
            with contextlib.suppress(psutil.Error):
                found |= {child.pid for child in psutil.Process(agent.pid).children()}
        return found


def run_job(
    directory: Path,
    test: Callable[[ToyJob], Awaitable[None]],
    *,
    workers: str = "2",
    slots: dict[str, int] | None = None,
    late: tuple[str, ...] = (),
    timeouts: Timeouts = QUICK,
    **stated: Any,
) -> ToyJob:
    """Runs `test` with a job; returns it when all of its processes have ended.

    Args:
      directory: for its files.
      test: what happens.
      workers: `-n`.
      slots: how many workers each machine takes.
      late: the machines that are not started.
      timeouts: the job's.
      **stated: more of its specification.
    """
    slots = slots or {"a": WorkerRange.parse(workers).high}
    spec = JobSpec(
        program=Program(target="train.py"),
        workers=WorkerRange.parse(workers),
        run_dir=str(directory),
        checkpoint_dir=str(directory / "checkpoints"),
        start_method="fresh",
        timeouts=timeouts,
        **stated,
    )
    for name in ("logs", "toy"):
        (directory / name).mkdir()

    async def run() -> ToyJob:
        sites = [Site(agent=name, host="127.0.0.1", slots=many) for name, many in slots.items()]
        plan = make_plan(spec, sites)
        events, told = EventLog(directory / "events.jsonl"), Told(plan.chief)
        known = Whereabouts(expected=set(slots))
        controller = Controller(RoundRunner(spec, plan, events, told, known))
        token = uuid.uuid4().hex  # whose agents share no memory with those of another test
        control = ControlServer(controller, token)
        await control.start("127.0.0.1")
        controller.start()
        job = ToyJob(
            **{"controller": controller, "control": control, "spec": spec, "told": told},
            token=token,
            **{"log": directory / "events.jsonl", "folder": directory / "toy", "slots": slots},
        )
        try:
            for name in slots.keys() - set(late):
                job.start_agent(name)
            await test(job)
        finally:
            controller.interrupt("SIGINT")
            for agent in job.agents.values():
                await asyncio.to_thread(job.reap, agent)
            await control.close()
            told.close()
            events.close()
        return job

    return asyncio.run(run())
