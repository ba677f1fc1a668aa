"""10, 100 and 1,000 agents that are only messages: how soon the controller has a cluster, how
soon all have heard of a death, and how soon it has taken in that all are gone.

The controller, its port and its messages are the real ones; the agents, in a process of their own,
speak the protocol over loopback and start nothing. Goals with 1,000: formed in under 3 s, a death
heard of in under 0.3 s.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import SCRIPTS, numbers, record

from tfrun.control.controller import Controller
from tfrun.control.placement import Site, Whereabouts, make_plan
from tfrun.control.round_runner import RoundRunner
from tfrun.control.server import ControlServer
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.observe.events import EventLog
from tfrun.observe.terminal import Terminal

TOKEN = "the-token"
SIZES = (10, 100, 1000)
REPEATS = 5
DEADLINE = 60.0


async def measured(agents: int, directory: Path) -> dict[str, float]:
    """Seconds until a cluster of so many agents stands, and until a death is known to all."""
    names = [f"n{number}" for number in range(agents)]
    spec = JobSpec(
        program=Program(target="train.py"),
        workers=WorkerRange(low=agents // 2, high=agents),
        run_dir=str(directory),
    )
    plan = make_plan(spec, [Site(agent=name, host=name, slots=1) for name in names])
    events = EventLog(directory / "events.jsonl")
    terminal = Terminal(prefix_all=False, chief=plan.chief)
    known = Whereabouts(expected=set(names))
    controller = Controller(RoundRunner(spec, plan, events, terminal, known))
    server = ControlServer(controller, TOKEN)
    await server.start("127.0.0.1")
    controller.start()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SCRIPTS / "agents.py"), str(server.port), TOKEN, str(agents)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        found = json.loads(await asyncio.wait_for(process.stdout.readline(), DEADLINE))
        process.kill()
        began = time.perf_counter()
        while controller.runner.members.names:
            assert time.perf_counter() - began < DEADLINE
            await asyncio.sleep(0.01)
        return {**found, "all are lost": time.perf_counter() - began}
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        controller.interrupt("SIGINT")
        controller.interrupt("SIGINT")
        await server.close()
        terminal.close()
        events.close()


def main() -> None:
    for size in SIZES:
        found: dict[str, list[float]] = {}
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as directory:
                run = asyncio.run(measured(size, Path(directory)))
            for name, seconds in run.items():
                found.setdefault(name, []).append(seconds)
        assert all(statistics.median(values) > 0 for values in found.values())
        record(f"{size} agents", "s", {name: numbers(values) for name, values in found.items()})


if __name__ == "__main__":
    main()
