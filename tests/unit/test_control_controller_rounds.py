"""The controller from round to round, behind its port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from control_port import Served, prepare, receive, with_server

from tfrun.control.protocol import messages, wire
from tfrun.control.rounds.model import State
from tfrun.observe.events import read_events

Socket = aiohttp.ClientWebSocketResponse


async def send(socket: Socket, message: wire.Message) -> None:
    await socket.send_str(wire.encode(message))


async def start(sockets: list[Socket], number: int = 0) -> list[dict]:
    """Both agents are ready; returns what each has to start."""
    tasks = []
    for port, socket in enumerate(sockets, start=2000 + 10 * number):
        await send(socket, messages.Prepared(round=number, ports=[port], import_seconds=0.0))
    for socket in sockets:
        message = await receive(socket)
        assert isinstance(message, messages.StartRound)
        assert message.round == number
        tasks += message.tasks
    return tasks


def report(task: str, values: dict[str, Any], number: int = 0) -> messages.WorkerReport:
    return messages.WorkerReport(round=number, task=task, time=1.0, report=values)


def exited(task: str, code: int, number: int = 0) -> messages.WorkerExited:
    return messages.WorkerExited(
        **{"round": number, "task": task, "time": 2.0, "code": code},
        **{"out_of_memory": False, "requested": False, "tail": ""},
    )


PEER = {"kind": "error", "type": "UnavailableError", "message": "", "traceback": ""}
SNAPSHOT = {"kind": "snapshot", "key": [0, 0, 5], "step": 5, "seconds": 0.1}


async def fail(sockets: list[Socket], *, snapshot: bool = False) -> None:
    """Worker 1 of round 0 is killed, and worker 0 leaves."""
    await send(sockets[1], exited("worker:1", -9))
    for socket in sockets:
        assert await receive(socket) == messages.Leave(round=0)
    if snapshot:
        await send(sockets[0], report("worker:0", SNAPSHOT))
    await send(sockets[0], report("worker:0", PEER))
    await send(sockets[0], exited("worker:0", 1))
    for socket in sockets:
        assert await receive(socket) == messages.Prepare(round=1, ports=1)


def test_the_next_round_has_its_number_and_new_ports(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await prepare(served)
        assert [task["muted"] for task in await start(sockets)] == [False, False]
        await fail(sockets)
        tasks = await start(sockets, 1)
        assert [task["muted"] for task in tasks] == [False, False]
        for index, task in enumerate(tasks):
            assert task["environment"]["TFRUN_ROUND"] == "1"
            assert f"127.0.0.1:{2010 + index}" in task["environment"]["TF_CONFIG"]

    with_server(tmp_path, test)


def test_with_a_snapshot_the_output_waits_and_the_recovery_is_told(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await prepare(served)
        await start(sockets)
        await fail(sockets, snapshot=True)
        assert all(task["muted"] for task in await start(sockets, 1))
        resumed = {"kind": "resumed", "key": [0, 0, 5], "step": 5}
        await send(sockets[0], report("worker:0", resumed, 1))
        await send(sockets[0], report("worker:0", {"kind": "first_step", "step": 6}, 1))
        await send(sockets[0], report("worker:0", {"kind": "done"}, 1))
        await send(sockets[1], report("worker:1", {"kind": "done"}, 1))
        assert await receive(sockets[0]) == messages.Release(round=1)
        (recovered,) = [e for e in read_events(served.log) if e["event"] == "recovered"]
        assert (recovered["round"], recovered["step"], recovered["lost_steps"]) == (1, 5, 0)
        assert served.controller.runner.recovery.restarts.total == 1

    with_server(tmp_path, test)


def test_late_news_of_the_old_round_changes_nothing_in_the_new_one(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await prepare(served)
        await start(sockets)
        await fail(sockets)
        zygote = {"code": "TFRUN-404", "reason": "it was killed", "detail": ""}
        for late in (
            exited("worker:1", -9),
            report("worker:1", {"kind": "error", "type": "ValueError"}),
            messages.Prepared(round=0, ports=[1], import_seconds=0.0),
            messages.PrepareFailed(round=0, **zygote),
        ):
            await send(sockets[1], late)
        await start(sockets, 1)
        assert served.controller.runner.round.state is State.RUNNING
        assert served.controller.runner.round.failures == ()

    with_server(tmp_path, test)


def test_a_zygote_that_dies_costs_a_round_and_not_its_agent(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await prepare(served)
        await start(sockets)
        died = messages.PrepareFailed(round=0, code="TFRUN-404", reason="it was killed", detail="")
        await send(sockets[1], died)
        for socket in sockets:
            assert await receive(socket) == messages.Leave(round=0)
        await send(sockets[0], exited("worker:0", -9))
        for socket in sockets:
            assert await receive(socket) == messages.Prepare(round=1, ports=1)

    with_server(tmp_path, test)


def test_an_agent_that_is_lost_between_two_rounds_ends_the_job(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await prepare(served)
        await start(sockets)
        await fail(sockets)
        await sockets[1].close()
        await served.controller.runner.ended.wait()
        cause = served.controller.runner.round.root_cause
        assert cause is not None and (cause.task, cause.code) == ("b", "TFRUN-301")
        assert not served.controller.runner.gave_up

    with_server(tmp_path, test)


def test_a_first_step_that_is_told_when_the_round_has_failed_is_no_recovery(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A host goes at the first step: "; restarted from the beginning" and an event were told."""
    first = {"kind": "first_step", "key": [0, 0, 1], "step": 1, "made": 1}

    async def test(served: Served) -> None:
        sockets = await prepare(served)
        await start(sockets)
        await send(sockets[1], exited("worker:1", -9))
        for socket in sockets:
            assert await receive(socket) == messages.Leave(round=0)
        await send(sockets[0], report("worker:0", first))
        await send(sockets[0], report("worker:0", PEER))
        await send(sockets[0], exited("worker:0", 1))
        for socket in sockets:
            assert await receive(socket) == messages.Prepare(round=1, ports=1)
        await start(sockets, 1)
        assert not [e for e in read_events(served.log) if e["event"] == "recovered"]
        for number in range(2):
            await send(sockets[number], report(f"worker:{number}", first, 1))
            await send(sockets[number], report(f"worker:{number}", {"kind": "done"}, 1))
        assert await receive(sockets[0]) == messages.Release(round=1)
        (recovered,) = [e for e in read_events(served.log) if e["event"] == "recovered"]
        assert (recovered["round"], recovered["lost_steps"]) == (1, 1)

    with_server(tmp_path, test)
    told = [line for line in capfd.readouterr().err.splitlines() if "restarted" in line]
    assert len(told) == 1 and told[0].startswith(
        "tfrun: worker 1 killed by SIGKILL at step 1; restarted from the beginning with 2 workers"
        ", and does 1 step again,"
    )
