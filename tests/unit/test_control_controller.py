"""The controller behind its port: good jobs, silent agents, clusters that do not form."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
from control_port import Served, closed, prepare, receive, with_server

from tfrun.control.protocol import messages, wire
from tfrun.job.timeouts import Timeouts


def test_a_good_job(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await prepare(served)
        for port, socket in enumerate(sockets, start=2000):
            prepared = messages.Prepared(round=0, ports=[port], import_seconds=1.0)
            await socket.send_str(wire.encode(prepared))
        for index, socket in enumerate(sockets):
            start = await receive(socket)
            assert isinstance(start, messages.StartRound)
            (task,) = start.tasks
            assert task["task"] == f"worker:{index}"
            config = json.loads(task["environment"]["TF_CONFIG"])
            assert config["cluster"] == {"worker": ["127.0.0.1:2000", "127.0.0.1:2001"]}
        for index, socket in enumerate(sockets):
            done = messages.WorkerReport(
                round=0, task=f"worker:{index}", time=1.0, report={"kind": "done"}
            )
            await socket.send_str(wire.encode(done))
        for index, socket in enumerate(sockets):
            assert await receive(socket) == messages.Release(round=0)
            ended = messages.WorkerExited(
                **{"round": 0, "task": f"worker:{index}", "time": 2.0, "code": 0},
                **{"out_of_memory": False, "requested": False, "tail": ""},
            )
            await socket.send_str(wire.encode(ended))
        for socket in sockets:
            assert await receive(socket) == messages.Shutdown()
            await socket.close()
        await served.controller.runner.ended.wait()
        assert served.controller.runner.round.root_cause is None

    with_server(tmp_path, test)


async def beat_until_the_end(served: Served, agent: aiohttp.ClientWebSocketResponse) -> None:
    ending = asyncio.create_task(served.controller.runner.ended.wait())
    while not ending.done():
        await agent.send_str(wire.encode(messages.Heartbeat(agent="b")))
        await asyncio.wait([ending], timeout=0.05)


def test_an_agent_that_falls_silent_is_lost_and_one_that_beats_is_not(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        _, beating = await prepare(served)
        await beat_until_the_end(served, beating)
        cause = served.controller.runner.round.root_cause
        assert cause is not None
        assert (cause.task, cause.code) == ("a", "TFRUN-301")
        assert "silent" in cause.tail

    with_server(tmp_path, test, Timeouts(heartbeat_interval=0.05, heartbeat_timeout=0.5))


def test_a_cluster_that_does_not_form_says_for_whom_it_waited(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await beat_until_the_end(served, await served.join("b"))
        cause = served.controller.runner.round.root_cause
        assert cause is not None and cause.code == "TFRUN-303"
        assert cause.task == "a"

    timeouts = Timeouts(
        **{"heartbeat_interval": 0.05, "heartbeat_timeout": 0.9, "join_timeout": 1.0},
        **{"stop_grace": 0.1, "interrupt_grace": 0.1},
    )
    with_server(tmp_path, test, timeouts)


def test_a_job_that_has_ended_takes_nobody_in(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        served.controller.interrupt("SIGTERM")
        await served.controller.runner.ended.wait()
        late = await served.join("a")
        assert await asyncio.wait_for(closed(late), 1.0) is not None

    with_server(tmp_path, test)
