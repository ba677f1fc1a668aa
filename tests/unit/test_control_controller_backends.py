"""What the controller makes of a backend's knowledge: reasons, addresses, late news of a loss."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from control_port import Served, prepare, receive, with_server

from tfrun.control.agent_orders import start_tasks
from tfrun.control.controller import Controller
from tfrun.control.placement import Site, Whereabouts, make_plan
from tfrun.control.protocol import messages, wire
from tfrun.control.round_runner import RoundRunner
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.job.timeouts import Timeouts
from tfrun.observe.events import EventLog
from tfrun.observe.terminal import Terminal

SPEC = JobSpec(
    program=Program(target="t.py"),
    workers=WorkerRange(low=2, high=2),
    run_dir="/tmp/run",
    timeouts=Timeouts(
        **{"heartbeat_interval": 0.02, "heartbeat_timeout": 0.1, "join_timeout": 0.2},
        **{"stop_grace": 0.1, "interrupt_grace": 0.1},
    ),
)
PLAN = make_plan(SPEC, [Site(agent=name, host=name, slots=1) for name in ("a", "b")])


def test_a_reported_address_replaces_the_name() -> None:
    ports = {"a": (1,), "b": (2,)}
    tasks = start_tasks(PLAN, SPEC, 0, ports, None, {"b": "10.0.0.2"})
    config = json.loads(tasks["a"][0].environment["TF_CONFIG"])
    assert config["cluster"] == {"worker": ["a:1", "10.0.0.2:2"]}


def test_the_time_out_says_why_each_host_is_missing(tmp_path: Path) -> None:
    async def test() -> None:
        events = EventLog(tmp_path / "events.jsonl")
        terminal = Terminal(prefix_all=False, chief=PLAN.chief)
        known = Whereabouts(waiting={"a": "its name does not resolve"})
        controller = Controller(RoundRunner(SPEC, PLAN, events, terminal, known))
        controller.start()
        await asyncio.wait_for(controller.runner.ended.wait(), 10)
        cause = controller.runner.round.root_cause
        assert cause is not None and cause.code == "TFRUN-303"
        assert cause.tail.endswith("waiting for a (its name does not resolve), b")
        terminal.close()
        events.close()

    asyncio.run(test())


def test_a_lost_host_is_the_cause_although_its_peer_failed_first(tmp_path: Path) -> None:
    """A peer's collective fails in milliseconds; that its machine is gone is known later."""

    async def test(served: Served) -> None:
        sockets = await prepare(served)
        for port, socket in enumerate(sockets, start=2000):
            prepared = messages.Prepared(round=0, ports=[port], import_seconds=1.0)
            await socket.send_str(wire.encode(prepared))
        for socket in sockets:
            assert isinstance(await receive(socket), messages.StartRound)
        raised = {"kind": "error", "type": "UnavailableError", "message": "m", "traceback": "t"}
        report = messages.WorkerReport(round=0, task="worker:0", time=1.0, report=raised)
        await sockets[0].send_str(wire.encode(report))
        await sockets[1].close()
        exited = messages.WorkerExited(
            **{"round": 0, "task": "worker:0", "time": 2.0, "code": 1},
            **{"out_of_memory": False, "requested": False, "tail": ""},
        )
        await sockets[0].send_str(wire.encode(exited))
        await served.controller.runner.ended.wait()
        cause = served.controller.runner.round.root_cause
        assert cause is not None
        assert (cause.task, cause.code) == ("b", "TFRUN-301")

    with_server(tmp_path, test)
