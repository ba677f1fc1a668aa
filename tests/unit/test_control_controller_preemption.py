"""The controller when machines are preempted, one of them or all, behind its port."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from control_port import (
    QUICK,
    Served,
    Socket,
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

from tfrun.control.placement import Whereabouts
from tfrun.control.protocol import messages
from tfrun.job.timeouts import Timeouts

SNAPSHOT = {"kind": "snapshot", "key": [0, 0, 8], "step": 8, "seconds": 0.1}


async def preempted(socket: Socket, agent: str) -> None:
    await say(socket, messages.Preempted(agent=agent))


def test_one_machine_is_preempted_and_the_other_goes_on(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a, b = await running(served)
        await preempted(b, "b")
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
        assert served.controller.runner.recovery.restarts.total == 0
        (left,) = of(served, "machine_preempted")
        assert left["preempted"] == ["b"]
        assert not of(served, "failure") and not of(served, "agent_lost")

    with_server(tmp_path, test, QUICK, low=1, known=returning())


def test_a_machine_that_alone_has_the_newest_state_passes_it_on_first(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        a, b = await running(served)
        await preempted(b, "b")
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
        await preempted(b, "b")
        if low == 1:  # within the second
            await preempted(a, "a")
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
        await preempted(b, "b")
        for socket in (a, b):
            assert await receive(socket) == messages.Regroup(round=0)
        for socket in (a, b):
            assert await receive(socket) == messages.Leave(round=0)
        await leaves(a, 0, "worker:0")
        assert await receive(b) == messages.Shutdown(preempted=True, lost=True)
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
        await say(a, messages.MemorySaved(round=1, step=8, problem=problem))
        assert await receive(a) == messages.Shutdown(preempted=not problem)
        round = served.controller.runner.round
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
        await served.controller.runner.ended.wait()
        round = served.controller.runner.round
        assert not round.preempted and "are gone" in round.unsaved

    with_server(tmp_path, test, QUICK, known=returning())


def test_the_only_machine_with_the_state_does_not_go_while_others_are_waited_for(
    tmp_path: Path,
) -> None:
    async def test(served: Served) -> None:
        a, b, c = await running(served)
        await report(a, 0, "worker:0", SNAPSHOT)
        await c.close()
        for number, socket in enumerate((a, b)):
            assert await receive(socket) == messages.Leave(round=0)
            await leaves(socket, 0, f"worker:{number}")
        while not of(served, "waiting"):
            await asyncio.sleep(0.01)
        await preempted(a, "a")
        assert await receive(a) == messages.SaveMemory(round=1)

    quick = {"heartbeat_interval": 0.05, "heartbeat_timeout": 8.0, "settle": 0.1}
    known = Whereabouts(expected={"a", "b", "c"})
    timeouts = Timeouts(rejoin_timeout=15.0, **quick)
    with_server(tmp_path, test, timeouts, low=1, known=known, machines="abc")


def test_one_that_stands_by_goes_at_once(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        sockets = await running(served)
        await lose_b(sockets)
        a = sockets[0]
        assert await receive(a) == messages.Prepare(round=1, ports=1)
        b = await served.join("b")
        assert await receive(b) == messages.Prepare(round=1, ports=0)
        await preempted(b, "b")
        assert await receive(b) == messages.Shutdown(preempted=True)
        assert not of(served, "agent_lost")[1:]

    with_server(tmp_path, test, QUICK, low=1, known=returning())


def test_at_the_start_the_others_may_be_on_their_way(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        b = await served.join("b")
        await preempted(b, "b")
        await asyncio.sleep(0.2)
        a = await served.join("a")
        for socket in (a, b):  # the job has not ended, and the workers will leave when they run
            assert await receive(socket) == messages.Prepare(round=0, ports=1)

    with_server(tmp_path, test, QUICK, low=1, known=returning())
