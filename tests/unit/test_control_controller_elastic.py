"""The controller when machines are lost and come back, behind its port."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from control_port import Served, closed, prepare, receive, with_server

from tfrun.control import messages
from tfrun.control.plan import Whereabouts
from tfrun.control.round_terms import State
from tfrun.job.timeouts import Timeouts
from tfrun.observe.events import read_events

Socket = aiohttp.ClientWebSocketResponse
QUICK = Timeouts(heartbeat_interval=0.05, heartbeat_timeout=8.0, settle=0.1, grow_after=0.1)
PEER = {"kind": "error", "type": "UnavailableError", "message": "", "traceback": ""}


def returning() -> Whereabouts:
    return Whereabouts(expected={"a", "b"})


async def send(socket: Socket, message: messages.Message) -> None:
    await socket.send_str(messages.encode(message))


async def prepared(socket: Socket, number: int, *ports: int) -> None:
    await send(socket, messages.Prepared(round=number, ports=list(ports), import_seconds=0.0))


async def started(socket: Socket, number: int) -> list[dict]:
    message = await receive(socket)
    assert isinstance(message, messages.StartRound) and message.round == number
    return message.tasks


async def report(socket: Socket, number: int, task: str, values: dict[str, Any]) -> None:
    await send(socket, messages.WorkerReport(round=number, task=task, time=1.0, report=values))


async def leaves(socket: Socket, number: int, task: str) -> None:
    """The worker keeps its state and ends, as it does when a peer has gone."""
    await report(socket, number, task, PEER)
    ended = {"code": 1, "out_of_memory": False, "requested": False, "tail": ""}
    await send(socket, messages.WorkerExited(round=number, task=task, time=2.0, **ended))


async def running(served: Served) -> list[Socket]:
    sockets = await prepare(served)
    for port, socket in enumerate(sockets, start=2000):
        await prepared(socket, 0, port)
    for socket in sockets:
        assert len(await started(socket, 0)) == 1
    return sockets


async def lose_b(sockets: list[Socket]) -> None:
    await sockets[1].close()
    assert await receive(sockets[0]) == messages.Leave(round=0)
    await leaves(sockets[0], 0, "worker:0")


def of(served: Served, kind: str) -> list[dict[str, Any]]:
    return [event for event in read_events(served.log) if event["event"] == kind]


def test_a_job_shrinks_and_grows(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        await lose_b(sockets)
        a = sockets[0]
        assert await receive(a) == messages.Prepare(round=1, ports=1)
        await prepared(a, 1, 2001)
        assert len(await started(a, 1)) == 1
        b = await served.join("b")
        assert await receive(b) == messages.Prepare(round=1, ports=0)
        await prepared(b, 1)
        # Not before its first step: nothing would be gained.
        await asyncio.sleep(0.4)
        assert not of(served, "regroup")
        await report(a, 1, "worker:0", {"kind": "first_step", "step": 8})
        for socket in (a, b):
            assert await receive(socket) == messages.Regroup(round=1)
        assert served.controller.round.state is State.RUNNING
        await leaves(a, 1, "worker:0")
        assert await receive(a) == messages.Leave(round=1)
        assert await receive(b) == messages.Leave(round=1)
        for socket, port in ((a, 2002), (b, 2003)):
            assert await receive(socket) == messages.Prepare(round=2, ports=1)
            await prepared(socket, 2, port)
        for index, socket in enumerate((a, b)):
            (task,) = await started(socket, 2)
            assert (task["task"], task["environment"]["WORLD_SIZE"]) == (f"worker:{index}", "2")
        await report(a, 2, "worker:0", {"kind": "first_step", "step": 9})
        await report(a, 2, "worker:0", {"kind": "done"})
        await report(b, 2, "worker:1", {"kind": "done"})
        assert await receive(a) == messages.Release(round=2)
        assert served.controller.recovery.restarts.total == 1
        assert [e["workers"] for e in of(served, "resized")] == [1, 2]
        assert len(of(served, "failure")) == len(of(served, "grown")) == 1

    with_server(tmp_path, test, QUICK, low=1, known=returning())


def test_a_job_that_needs_the_machine_waits_until_it_is_back(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        await lose_b(sockets)
        while not of(served, "waiting"):
            await asyncio.sleep(0.01)
        assert served.controller.round.state is State.JOINING
        b = await served.join("b")
        for socket in (sockets[0], b):
            assert await receive(socket) == messages.Prepare(round=1, ports=1)
        assert not of(served, "resized")

    with_server(tmp_path, test, QUICK, known=returning())


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        await lose_b(sockets)
        ending = asyncio.create_task(served.controller.ended.wait())
        while not ending.done():
            await send(sockets[0], messages.Heartbeat(agent="a"))
            await asyncio.wait([ending], timeout=0.05)
        cause = served.controller.round.root_cause
        assert cause is not None and cause.code == "TFRUN-303"
        assert cause.tail == "b did not return in 1 s"

    quick = {"interrupt_grace": 0.1, "stop_grace": 0.1, "settle": 0.1}
    timeouts = Timeouts(heartbeat_interval=0.05, heartbeat_timeout=0.9, join_timeout=1.0, **quick)
    with_server(tmp_path, test, timeouts, known=returning())


def test_one_that_stands_by_and_cannot_start_workers_is_let_go(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        await lose_b(sockets)
        a = sockets[0]
        assert await receive(a) == messages.Prepare(round=1, ports=1)
        await prepared(a, 1, 2001)
        await started(a, 1)
        b = await served.join("b")
        await receive(b)
        reason = "TensorFlow cannot be imported"
        await send(b, messages.PrepareFailed(round=1, code="TFRUN-402", reason=reason, detail=""))
        assert await receive(b) == messages.Shutdown(lost=True)
        assert served.controller.round.state is State.RUNNING
        # It may come again, and be lost again: nobody else is told.
        again = await served.join("b")
        assert await receive(again) == messages.Prepare(round=1, ports=0)
        await again.close()
        while len(of(served, "agent_lost")) < 3:
            await asyncio.sleep(0.01)
        assert served.controller.round.state is State.RUNNING

    with_server(tmp_path, test, QUICK, low=1, known=returning())


def test_the_late_end_of_an_old_connection_is_not_the_new_ones(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        served.controller.left("b", "silent")
        assert await receive(sockets[0]) == messages.Leave(round=0)
        await leaves(sockets[0], 0, "worker:0")
        assert await receive(sockets[0]) == messages.Prepare(round=1, ports=1)
        b = await served.join("b")
        assert await receive(b) == messages.Prepare(round=1, ports=0)
        await sockets[1].close()
        await asyncio.sleep(0.5)
        assert len(of(served, "agent_lost")) == 1
        await b.close()
        while len(of(served, "agent_lost")) < 2:
            await asyncio.sleep(0.01)

    with_server(tmp_path, test, QUICK, low=1, known=returning())


def test_a_start_without_all_machines(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a = await served.join("a")
        assert await receive(a) == messages.Prepare(round=0, ports=1)
        assert served.controller.round.agents == {"a"}
        await prepared(a, 0, 2000)
        assert [t["environment"]["WORLD_SIZE"] for t in await started(a, 0)] == ["1"]
        late = await served.join("b")
        assert await receive(late) == messages.Prepare(round=0, ports=0)

    timeouts = Timeouts(heartbeat_interval=0.05, settle=0.1, start_timeout=0.3)
    with_server(tmp_path, test, timeouts, low=1, known=returning())


def test_a_second_agent_of_a_name_is_refused(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await running(served)
        other = await served.join("b")
        assert await asyncio.wait_for(closed(other), 2.0) is not None
        assert not of(served, "agent_lost")

    with_server(tmp_path, test, QUICK, low=1, known=returning())


def test_a_host_that_can_never_start_is_done_without_where_that_is_possible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = returning()

    async def test(served: Served) -> None:
        a = await served.join("a")
        known.expected.discard("b")  # as the backend does when trying again cannot help
        served.controller.never_joined("b", "permission denied", "TFRUN-304")
        assert await receive(a) == messages.Prepare(round=0, ports=1)

    with_server(tmp_path, test, QUICK, low=1, known=known)
    assert "the agent b could not start, and is done without: permission denied" in (
        capsys.readouterr().err
    )


def test_a_host_that_can_never_start_ends_a_job_that_needs_it(tmp_path: Path) -> None:
    known = returning()

    async def test(served: Served) -> None:
        await served.join("a")
        known.expected.discard("b")
        served.controller.never_joined("b", "permission denied", "TFRUN-304")
        await served.controller.ended.wait()
        cause = served.controller.round.root_cause
        assert cause is not None and cause.code == "TFRUN-304"

    with_server(tmp_path, test, QUICK, known=known)


def test_all_are_waited_for_at_the_start_also_where_none_can_come_back(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a = await served.join("a")
        await asyncio.sleep(0.2)
        b = await served.join("b")
        for socket in (a, b):
            assert await receive(socket) == messages.Prepare(round=0, ports=1)

    with_server(tmp_path, test, QUICK, low=1)


# --- machines that are wanted back ----------------------------------------------------------

SNAPSHOT = {"kind": "snapshot", "key": [0, 0, 8], "step": 8, "seconds": 0.1}


async def wanted_back(socket: Socket, agent: str) -> None:
    await send(socket, messages.WantedBack(agent=agent))


def test_one_machine_is_wanted_back_and_the_other_goes_on(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a, b = await running(served)
        await wanted_back(b, "b")
        for socket in (a, b):
            assert await receive(socket) == messages.Regroup(round=0)
        for number, socket in enumerate((a, b)):
            await report(socket, 0, f"worker:{number}", SNAPSHOT)
            await leaves(socket, 0, f"worker:{number}")
        for socket in (a, b):
            assert await receive(socket) == messages.Leave(round=0)
        # It is let go as soon as the other has all that it has.
        assert await receive(b) == messages.Shutdown(preempted=True)
        assert await receive(a) == messages.Prepare(round=1, ports=1)
        await b.close()
        again = await served.join("b")  # who starts it does so again
        assert await receive(again) == messages.Prepare(round=1, ports=0)
        await prepared(again, 1)
        await prepared(a, 1, 2001)
        assert len(await started(a, 1)) == 1
        await report(a, 1, "worker:0", {"kind": "first_step", "step": 9})
        await asyncio.sleep(0.5)
        assert len(of(served, "regroup")) == 1  # it may still be taken away
        assert served.controller.recovery.restarts.total == 0
        (left,) = of(served, "machine_preempted")
        assert left["preempted"] == ["b"]
        assert not of(served, "failure") and not of(served, "agent_lost")

    with_server(tmp_path, test, QUICK, low=1, known=returning())


def test_a_machine_that_alone_has_the_newest_state_passes_it_on_first(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a, b = await running(served)
        await wanted_back(b, "b")
        for socket in (a, b):
            assert await receive(socket) == messages.Regroup(round=0)
        await report(b, 0, "worker:1", SNAPSHOT)
        for number, socket in enumerate((a, b)):
            await leaves(socket, 0, f"worker:{number}")
        for port, socket in enumerate((a, b), start=2002):
            assert await receive(socket) == messages.Leave(round=0)
            assert await receive(socket) == messages.Prepare(round=1, ports=1)
            await prepared(socket, 1, port)
        for socket in (a, b):
            await started(socket, 1)
            assert await receive(socket) == messages.Regroup(round=1)

    with_server(tmp_path, test, QUICK, low=1, known=returning())


@pytest.mark.parametrize("low", [1, 2])
def test_when_too_few_would_be_left_the_state_is_saved(tmp_path: Path, low: int) -> None:
    async def test(served: Served) -> None:
        a, b = await running(served)
        await wanted_back(b, "b")
        if low == 1:  # within the second
            await wanted_back(a, "a")
        for socket in (a, b):
            assert await receive(socket) == messages.Save(round=0)
        await report(a, 0, "worker:0", {"kind": "job_saved", "step": 8})
        for socket in (a, b):
            stop = await receive(socket)
            assert isinstance(stop, messages.StopRound) and stop.signal == "SIGKILL"
        assert not of(served, "regroup")

    with_server(tmp_path, test, QUICK, low=low, known=returning())


def test_a_machine_whose_time_is_over_is_done_without(tmp_path: Path) -> None:
    """No step ends, and its workers do not leave."""

    async def test(served: Served) -> None:
        a, b = await running(served)
        await wanted_back(b, "b")
        for socket in (a, b):
            assert await receive(socket) == messages.Regroup(round=0)
        for socket in (a, b):
            assert await receive(socket) == messages.Leave(round=0)
        await leaves(a, 0, "worker:0")
        assert await receive(b) == messages.Shutdown(preempted=True)
        assert await receive(a) == messages.Prepare(round=1, ports=1)

    quick = {"heartbeat_interval": 0.05, "heartbeat_timeout": 8.0, "settle": 0.1}
    timeouts = Timeouts(grow_after=0.1, preempt_grace=3.0, **quick)
    with_server(tmp_path, test, timeouts, low=1, known=returning())


@pytest.mark.parametrize("problem", ["", "the disk is full"])
def test_sigterm_while_the_job_waits_has_a_machine_save_its_memory(
    tmp_path: Path, problem: str
) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        for socket, task in zip(sockets, ("worker:0", "worker:1"), strict=True):
            await report(socket, 0, task, SNAPSHOT)
        await lose_b(sockets)
        while not of(served, "waiting"):
            await asyncio.sleep(0.01)
        served.controller.interrupt("SIGTERM")
        a = sockets[0]
        assert await receive(a) == messages.SaveMemory(round=1)
        await send(a, messages.MemorySaved(round=1, step=8, problem=problem))
        assert await receive(a) == messages.Shutdown(preempted=not problem)
        round = served.controller.round
        assert (round.preempted, round.unsaved, round.saved_step) == (
            (True, "", 8) if not problem else (False, problem, None)
        )

    with_server(tmp_path, test, QUICK, known=returning())


def test_when_the_machine_that_saves_is_lost_nothing_is_saved(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        await report(sockets[0], 0, "worker:0", SNAPSHOT)
        await lose_b(sockets)
        while not of(served, "waiting"):
            await asyncio.sleep(0.01)
        served.controller.interrupt("SIGTERM")
        assert await receive(sockets[0]) == messages.SaveMemory(round=1)
        await sockets[0].close()
        await served.controller.ended.wait()
        round = served.controller.round
        assert not round.preempted and "are gone" in round.unsaved

    with_server(tmp_path, test, QUICK, known=returning())
