"""A port that strangers reach: as many as they like, and as badly as they like."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from test_control_tls import certificate

from tfrun.control.protocol import tls as trust
from tfrun.observe import public_port as ports
from tfrun.observe.access import Access
from tfrun.observe.page_server import WatchRoutes
from tfrun.observe.public_port import Port

OWNER = {"Authorization": "Bearer x"}
MALFORMED = {
    "version": b"GET / HTTP/9.9\r\n\r\n",
    "method": b"G\x00T / HTTP/1.1\r\n\r\n",
    "no UTF-8": b"GET /\xff HTTP/1.1\r\n\r\n",
    "address": b"GET http://[ HTTP/1.1\r\n\r\n",
    "host": b"GET /status HTTP/1.1\r\nHost: [\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
    "long": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "length": b"POST /stop HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "chunks": b"POST /open HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no gzip": b"GET /open HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "zeros": bytes(100),
    "nothing": b"",
}


async def fine(request: web.Request) -> web.StreamResponse:
    return web.Response(text="fine")


async def wrong(request: web.Request) -> web.StreamResponse:
    raise RuntimeError("a mistake of ours")


ROUTES = [web.get("/open", fine), web.get("/status", fine), web.get("/wrong", wrong)]


def with_port(
    test: Callable[[Port], Awaitable[None]], port: Port | None = None, context=None
) -> None:
    async def run() -> None:
        served = port or Port(
            ROUTES,
            lambda request: request.headers.get("Authorization") == "Bearer x",
            open_to_all={"/open"},
        )
        await served.start("127.0.0.1", tls=context)
        try:
            await asyncio.wait_for(test(served), 20)
        finally:
            await served.close()

    asyncio.run(run())


async def asked(port: Port, path: str = "/status", scheme: str = "http", **options) -> int:
    url = f"{scheme}://127.0.0.1:{port.number}{path}"
    async with (
        aiohttp.ClientSession(headers=OWNER) as session,
        session.get(url, **options) as answer,
    ):
        return answer.status


async def said(port: Port, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
    writer.write(data)
    writer.write_eof()
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.fixture
def nothing_heard(caplog: pytest.LogCaptureFixture, capfd) -> Iterator[None]:
    yield
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("nothing_heard")
def test_what_a_stranger_sends_is_not_heard_of(tmp_path: Path) -> None:
    async def test(port: Port) -> None:
        for name, data in MALFORMED.items():
            answer = await said(port, data)
            assert answer[9:12] in (b"", b"400", b"401", b"405", b"200"), name
        assert await asked(port) == 200

    with_port(test)
    watch = WatchRoutes(tmp_path, lambda heat: {}, Access("x", knows_users=True))
    with_port(test, Port(watch.routes(), watch.access.admits))


@pytest.mark.usefixtures("nothing_heard")
def test_nor_what_he_sends_instead_of_tls(tmp_path: Path) -> None:
    own = certificate(tmp_path, "own")

    async def test(port: Port) -> None:
        for data in MALFORMED.values():
            await said(port, data)
        assert await asked(port, scheme="https", ssl=trust.trusting(trust.only(own.pem))) == 200

    with_port(test, context=own.context)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.usefixtures("nothing_heard")
def test_many_who_say_nothing_leave_room_for_who_belongs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    monkeypatch.setattr(ports, "MOST_STRANGERS", 8)
    own = certificate(tmp_path, "own") if encrypted else None
    scheme = "https" if own else "http"
    trusted: dict[str, Any] = {"ssl": trust.trusting(trust.only(own.pem))} if own else {}

    async def test(port: Port) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port.number) for _ in range(40)]
        assert await asked(port, scheme=scheme, **trusted) == 200
        for reader, _ in silent[:32]:  # the oldest were hung up on
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert not any(reader.at_eof() for reader, _ in silent[34:])
        for _, writer in silent:
            writer.close()

    with_port(test, context=own and own.context)


@pytest.mark.parametrize("data", [b"", b"GET /status HTTP/1.1\r\nA:", b"POST /open HTTP/1.1\r\n"])
def test_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(ports, "HELLO_SECONDS", 0.2)

    async def test(port: Port) -> None:
        known, asks = await asyncio.open_connection("127.0.0.1", port.number)
        for _ in range(2):
            asks.write(b"GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n")
            assert (await known.readuntil(b"fine")).startswith(b"HTTP/1.1 200")
            silent, says = await asyncio.open_connection("127.0.0.1", port.number)
            says.write(data)
            with contextlib.suppress(ConnectionError):
                assert await silent.read() == b""
            says.close()
        asks.close()

    with_port(test)


def test_a_mistake_of_ours_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test(port: Port) -> None:
        for _ in range(3):
            assert await asked(port, "/wrong") == 500

    with_port(test)
    assert [record.getMessage() for record in caplog.records] == ["GET /wrong failed"]
    assert caplog.records[0].exc_info


FEW_FILES = """
import asyncio, resource, sys
from aiohttp import web
from tfrun.observe.public_port import Port
async def fine(request):
    return web.Response(text="fine")
async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    port = Port([web.get("/status", fine)], lambda request: "Authorization" in request.headers)
    await port.start("127.0.0.1")
    held = [open("/dev/null") for _ in range(int(sys.argv[1]))]
    await asyncio.to_thread(print, port.number, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for file in held:
        file.close()
    await asyncio.to_thread(sys.stdin.read)
    await port.close()
asyncio.run(main())
"""


@pytest.mark.parametrize("held", [0, 24], ids=["few files", "hardly any"])
def test_a_process_that_may_open_few_files_stays_quiet_and_goes_on(held: int) -> None:
    """asyncio logs 1,024 tracebacks a second when no file is free."""
    command = [sys.executable, "-c", FEW_FILES, str(held)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin and stdout and stderr
        heard: list[str] = []
        listening = threading.Thread(target=lambda: heard.append(stderr.read()))
        listening.start()
        number = int(stdout.readline())

        async def test() -> int:
            port = Port([])
            port.number = number
            crowd = [await asyncio.open_connection("127.0.0.1", number) for _ in range(60)]
            stdin.write("\n")
            stdin.flush()
            status = await asked(port)
            for _, writer in crowd:
                writer.close()
            return status

        try:
            assert asyncio.run(asyncio.wait_for(test(), 20)) == 200
            stdin.close()
            assert process.wait(20) == 0
        finally:
            process.kill()
            listening.join()
    assert heard == [""]
