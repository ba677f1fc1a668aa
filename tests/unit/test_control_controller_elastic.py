"""The controller when machines are lost and come back, behind its port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from control_port import (
    QUICK,
    Served,
    closed,
    leaves,
    lose_b,
    of,
    prepared,
    receive,
    report,
    returning,
    running,
    say,
    started,
    with_server,
)

from tfrun.control.protocol import messages
from tfrun.control.rounds.model import State
from tfrun.job.timeouts import Timeouts

Socket = aiohttp.ClientWebSocketResponse


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
        assert served.controller.runner.round.state is State.RUNNING
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
        assert served.controller.runner.recovery.restarts.total == 1
        assert [e["workers"] for e in of(served, "resized")] == [1, 2]
        assert len(of(served, "failure")) == len(of(served, "grown")) == 1

    with_server(tmp_path, test, QUICK, low=1, known=returning())


def test_a_job_that_needs_the_machine_waits_until_it_is_back(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        await lose_b(sockets)
        while not of(served, "waiting"):
            await asyncio.sleep(0.01)
        assert served.controller.runner.round.state is State.JOINING
        b = await served.join("b")
        for socket in (sockets[0], b):
            assert await receive(socket) == messages.Prepare(round=1, ports=1)
        assert not of(served, "resized")

    with_server(tmp_path, test, QUICK, known=returning())


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        await lose_b(sockets)
        ending = asyncio.create_task(served.controller.runner.ended.wait())
        while not ending.done():
            await say(sockets[0], messages.Heartbeat(agent="a"))
            await asyncio.wait([ending], timeout=0.05)
        cause = served.controller.runner.round.root_cause
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
        await say(b, messages.PrepareFailed(round=1, code="TFRUN-402", reason=reason, detail=""))
        assert await receive(b) == messages.Shutdown(lost=True)
        assert served.controller.runner.round.state is State.RUNNING
        # It may come again, and be lost again: nobody else is told.
        again = await served.join("b")
        assert await receive(again) == messages.Prepare(round=1, ports=0)
        await again.close()
        while len(of(served, "agent_lost")) < 3:
            await asyncio.sleep(0.01)
        assert served.controller.runner.round.state is State.RUNNING

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
        assert served.controller.runner.round.agents == {"a"}
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
    assert "the agent b could not start, so the job goes on without it: permission denied" in (
        capsys.readouterr().err
    )


def test_a_host_that_can_never_start_ends_a_job_that_needs_it(tmp_path: Path) -> None:
    known = returning()

    async def test(served: Served) -> None:
        await served.join("a")
        known.expected.discard("b")
        served.controller.never_joined("b", "permission denied", "TFRUN-304")
        await served.controller.runner.ended.wait()
        cause = served.controller.runner.round.root_cause
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


SILENT = Timeouts(
    **{"heartbeat_interval": 0.05, "heartbeat_timeout": 0.6, "launcher_timeout": 1.5},
    **{"settle": 0.1, "grow_after": 0.1},
)


async def beat(socket: Socket, agent: str, until: Callable[[], object]) -> None:
    while not until():
        await say(socket, messages.Heartbeat(agent=agent))
        await asyncio.sleep(0.05)


def test_a_silent_machine_that_is_waited_for_is_taken_in_again(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a, b = await running(served)
        await report(b, 0, "worker:1", {"kind": "snapshot", "step": 7})
        await beat(a, "a", lambda: of(served, "agent_lost"))
        assert await receive(a) == messages.Leave(round=0)
        await leaves(a, 0, "worker:0")
        await beat(a, "a", lambda: served.controller.runner.round.number == 1)
        assert served.controller.runner.round.state is State.JOINING  # it is waited for
        assert not served.controller.runner.recovery.holders
        await say(b, messages.Heartbeat(agent="b"))
        for socket in (a, b):
            assert await receive(socket) == messages.Prepare(round=1, ports=1)
        assert served.controller.runner.recovery.holders == {"b": (0, 7)}
        assert len(of(served, "agent_back")) == 1 and len(of(served, "agent_joined")) == 2

    with_server(tmp_path, test, SILENT, known=returning())


def test_a_silent_machine_without_which_others_train_on_comes_anew(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a, b = await running(served)
        await beat(a, "a", lambda: of(served, "agent_lost"))
        assert await receive(a) == messages.Leave(round=0)
        await leaves(a, 0, "worker:0")
        assert await receive(a) == messages.Prepare(round=1, ports=1)
        await say(b, messages.Heartbeat(agent="b"))
        assert await receive(b) == messages.Shutdown(lost=True)
        assert not of(served, "agent_back")

    with_server(tmp_path, test, SILENT, low=1, known=returning())


def test_one_that_comes_anew_takes_the_place_of_the_silent_one(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a, b = await running(served)
        await beat(a, "a", lambda: of(served, "agent_lost"))
        again = await served.join("b")
        assert await receive(b) == messages.Shutdown(lost=True)
        await say(b, messages.Heartbeat(agent="b"))
        assert await receive(again) == messages.Prepare(round=0, ports=0)
        assert not of(served, "agent_back")

    with_server(tmp_path, test, SILENT, known=returning())


def test_nobody_is_lost_as_long_as_it_may_be_the_launchers_network(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a, b = await running(served)
        while not of(served, "cut_off"):
            await asyncio.sleep(0.02)
        await asyncio.gather(
            beat(a, "a", lambda: of(served, "heard_again")),
            beat(b, "b", lambda: of(served, "heard_again")),
        )
        assert not of(served, "agent_lost")
        assert served.controller.runner.round.state is State.RUNNING
        # And for ever it is not.
        while len(of(served, "agent_lost")) < 2:
            await asyncio.sleep(0.02)

    with_server(tmp_path, test, SILENT, known=returning())


def test_on_one_machine_alone_it_is_no_network(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await running(served)
        while not of(served, "agent_lost"):
            await asyncio.sleep(0.02)
        assert not of(served, "cut_off")

    timeouts = Timeouts(heartbeat_interval=0.05, heartbeat_timeout=0.6, launcher_timeout=1000.0)
    with_server(tmp_path, test, timeouts, low=1, machines="a")


def test_a_script_that_cannot_have_several_replicas_begins_anew_with_one_each(
    tmp_path: Path,
) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        assert served.controller.runner.spec.workers.low == 1
        refused = {"kind": "one_replica_each", "reason": "a loop of its own"}
        await report(sockets[0], 0, "worker:0", refused)
        for socket in sockets:
            assert await receive(socket) == messages.Leave(round=0)
        for socket, task in zip(sockets, ("worker:0", "worker:1"), strict=True):
            await leaves(socket, 0, task)
        for socket, port in zip(sockets, (2002, 2003), strict=True):
            assert await receive(socket) == messages.Prepare(round=1, ports=1)
            await prepared(socket, 1, port)
        for socket in sockets:
            (task,) = await started(socket, 1)
            assert task["settings"] == {}
        runner = served.controller.runner
        assert runner.recovery.restarts.total == 0 and not of(served, "failure")
        (event,) = of(served, "one_replica_each")
        assert event["reason"] == "a loop of its own"

    with_server(tmp_path, test, QUICK, low=1, known=returning())
