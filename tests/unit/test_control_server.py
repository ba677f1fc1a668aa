"""The control port: a real server and controller, real clients that behave and that do not."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import aiohttp
import pytest
from control_port import TOKEN, Served, closed, hello, prepare, receive, send, with_server

from tfrun.control import server
from tfrun.control.protocol import messages, wire
from tfrun.control.rounds.model import State
from tfrun.observe.access import Access
from tfrun.observe.page_server import WatchRoutes


async def untouched(served: Served) -> None:
    assert served.controller.runner.round.joined == frozenset()
    assert served.controller.runner.round.state is State.JOINING
    assert served.events == []


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer the-toke",
        "Bearer the-tokenx",
        "bearer the-token",
        "Basic the-token",
        "the-token",
        "Bearer the-tökén",
        "Bearer " + "x" * 4000,
    ],
)
def test_without_the_token_nothing_happens(tmp_path: Path, header: str | None) -> None:
    async def test(served: Served) -> None:
        headers = {} if header is None else {"Authorization": header}
        for path in ("/agent", "/", "/other"):
            url = f"http://127.0.0.1:{served.port}{path}"
            async with served.session.get(url, headers=headers) as answer:
                assert answer.status == 401
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await served.session.ws_connect(served.url, headers=headers)
        await untouched(served)

    with_server(tmp_path, test)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /agent HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
        b"GET /agent HTTP/1.1\r\nHost: x\r\nAuthorization: \xed\xa0\x80\r\n\r\n",
        b"POST /agent HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00" * 100,
    ],
    ids=["no UTF-8", "surrogate", "POST", "TLS", "SSH", "zeros"],
)
def test_strangers_are_refused_without_a_traceback(
    tmp_path: Path, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(request_bytes)
        writer.write_eof()
        answer = await reader.read()
        assert not answer or answer.startswith((b"HTTP/1.1 40", b"HTTP/1.0 40"))
        writer.close()
        await writer.wait_closed()
        await untouched(served)

    with_server(tmp_path, test)
    assert not [record for record in caplog.records if record.exc_info]


def test_the_token_without_a_websocket(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with served.session.get(served.url, headers=headers) as answer:
            assert answer.status == 400
        await untouched(served)

    with_server(tmp_path, test)


FIRST = {
    "malformed": "hello",
    "deep": "[" * 100_000,
    "another kind": wire.encode(messages.Heartbeat(agent="a")),
    "unknown agent": wire.encode(hello("c")),
    "empty agent": wire.encode(hello("")),
    "a long name": wire.encode(hello("a" * 100_000)),
    "another version": wire.encode(hello("a")).replace('"v":1', '"v":2'),
    "oversized": "x" * (wire.MAX_MESSAGE_BYTES + 1),
    "binary": wire.encode(hello("a")).encode(),
}


@pytest.mark.parametrize("frame", FIRST.values(), ids=FIRST)
def test_a_wrong_first_frame_closes_the_connection(tmp_path: Path, frame: str | bytes) -> None:
    async def test(served: Served) -> None:
        socket = await served.connect()
        await send(socket, frame)
        assert await closed(socket) is not None
        await untouched(served)

    with_server(tmp_path, test)


def test_one_that_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HELLO_SECONDS", 0.1)

    async def test(served: Served) -> None:
        assert await closed(await served.connect()) is not None
        await untouched(served)

    with_server(tmp_path, test)


def test_a_connection_that_closes_at_once(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await (await served.connect()).close()
        await untouched(served)

    with_server(tmp_path, test)


def test_a_second_agent_of_the_same_name_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        first = await served.join("a")
        second = await served.join("a")
        assert await closed(second) is not None
        other = await served.join("b")
        for socket in (first, other):
            assert await receive(socket) == messages.Prepare(round=0, ports=1)
        assert served.events.count("agent_joined") == 2

    with_server(tmp_path, test)


BAD_LATER = {
    "malformed": "}{",
    "deep": "[" * 100_000,
    "another version": '{"v":2,"kind":"shutdown"}',
    "oversized": "x" * (wire.MAX_MESSAGE_BYTES + 1),
    "binary": b"\x00",
    **{
        f"ports {ports}": wire.encode(messages.Prepared(round=0, ports=ports, import_seconds=1.0))
        for ports in ([], [1, 2], [0], [-1], [65536])
    },
}


@pytest.mark.parametrize("frame", BAD_LATER.values(), ids=BAD_LATER)
def test_a_wrong_frame_of_an_agent_ends_the_job_with_its_reason(
    tmp_path: Path, frame: str | bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(served: Served) -> None:
        bad, good = await prepare(served)
        prepared = messages.Prepared(round=0, ports=[2000], import_seconds=1.0)
        await good.send_str(wire.encode(prepared))
        await send(bad, frame)
        assert await closed(bad) is not None
        heard = [await receive(good)]
        while not isinstance(heard[-1], messages.StopRound | messages.Shutdown):
            heard.append(await receive(good))
        cause = served.controller.runner.round.root_cause
        assert cause is not None
        assert (cause.task, cause.code) == ("a", "TFRUN-301")

    with_server(tmp_path, test)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_thousand_malformed_frames_do_not_take_the_port_down(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        agent = await served.join("a")
        with contextlib.suppress(ConnectionError):
            for number in range(1000):
                await agent.send_str(f"{number} is no message")
        assert await closed(agent) is not None
        await served.controller.runner.ended.wait()
        cause = served.controller.runner.round.root_cause
        assert cause is not None and "TFRUN-302" in cause.tail

    with_server(tmp_path, test)


def test_a_thousand_malformed_connections_do_not_disturb_the_job(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        async def knock(number: int) -> None:
            async with limit:
                socket = await served.connect()
                await socket.send_str("{" * number)
                assert await closed(socket) is not None

        limit = asyncio.Semaphore(50)
        first = await served.join("a")
        await asyncio.gather(*(knock(number) for number in range(1000)))
        second = await served.join("b")
        for socket in (first, second):
            assert await receive(socket) == messages.Prepare(round=0, ports=1)

    with_server(tmp_path, test)


def test_who_may_look_becomes_no_agent(tmp_path: Path) -> None:
    """Not by the status token, nor by a page's session, nor as the job's own user."""

    async def test(served: Served) -> None:
        access = Access("the-status-token", knows_users=True)
        watch = WatchRoutes(tmp_path, lambda heat: {"state": "training"}, access)
        shown = server.ControlServer(served.controller, TOKEN, watch=watch)
        await shown.start("127.0.0.1")
        url = f"http://127.0.0.1:{shown.port}"
        session = access.redeem(access.new_key())
        try:
            for headers in (
                {},
                {"Authorization": "Bearer the-status-token"},
                {"Cookie": f"tfrun-{shown.port}={session}"},
            ):
                async with served.session.get(f"{url}/status", headers=headers) as answer:
                    assert (answer.status, await answer.json()) == (200, {"state": "training"})
                for path in ("/agent", "/job", "/other"):
                    async with served.session.get(url + path, headers=headers) as answer:
                        assert answer.status == 401, (path, headers)
                async with served.session.post(f"{url}/join", headers=headers) as answer:
                    assert answer.status == 401
            agent = {"Authorization": f"Bearer {TOKEN}"}
            async with served.session.get(f"{url}/job", headers=agent) as answer:
                assert answer.status == 200
        finally:
            await shown.close()
        await untouched(served)

    with_server(tmp_path, test)
