"""Ten thousand malformed messages against a real control port: it stays up and does not grow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from pathlib import Path

import aiohttp
import psutil
import pytest
from control_port import Served, closed, hello, receive, with_server

from tfrun.control.protocol import messages, wire
from tfrun.job.errors import TfrunError
from tfrun.observe import public_port

MALFORMED = 10_000
STRANGERS = 1_000  # connections without the token
AT_ONCE = 50
MOST_GROWTH = 32 << 20  # bytes
SEED = int(os.environ.get("FUZZ_SEED", "20"))
VALID = [
    wire.encode(message)
    for message in (
        hello("a"),
        messages.Prepared(round=0, ports=[2000], import_seconds=1.5),
        messages.WorkerReport(round=0, task="worker:0", time=1.5, report={"kind": "done"}),
        messages.Output(task="worker:0", stream="stdout", text="é" * 40),
        messages.StopRound(round=0, signal="SIGTERM", grace=1.0, tasks=["worker:0"]),
    )
]
VALUES = (None, True, -1, 2**70, 1e400, "", "x" * 5000, [], {}, [[[]]], {"a": {"b": [0]}}, "\ud800")


def malformed(chance: random.Random) -> str | bytes:
    """A message that no agent may begin with: cut, mixed up, of other types, or mere noise."""
    while True:
        frame = _mutated(chance)
        if isinstance(frame, bytes):
            return frame
        try:
            message = wire.decode(frame)
        except TfrunError:
            return frame
        if not isinstance(message, messages.Hello) or message.agent not in ("a", "b"):
            return frame


def _mutated(chance: random.Random) -> str | bytes:
    frame = chance.choice(VALID)
    match chance.randrange(6):
        case 0:
            return chance.randbytes(chance.randrange(2000))
        case 1:
            return frame[: chance.randrange(len(frame))]
        case 2:
            letters = list(frame)
            for _ in range(chance.randint(1, 5)):
                letters[chance.randrange(len(letters))] = chr(chance.randrange(1, 0xD7FF))
            return "".join(letters)
        case 3:
            return chance.choice("[{") * chance.randrange(100_000)
        case 4:
            return frame * chance.randint(2, 50)
    fields = json.loads(frame)
    for name in chance.sample(sorted(fields), chance.randint(1, len(fields))):
        fields[name] = chance.choice(VALUES)
    if chance.random() < 0.2:
        fields.pop(chance.choice(sorted(fields)))
    return json.dumps(fields)


async def beat(socket: aiohttp.ClientWebSocketResponse) -> None:
    while True:
        await socket.send_str(wire.encode(messages.Heartbeat(agent="a")))
        await asyncio.sleep(0.5)


@pytest.mark.slow
def test_ten_thousand_malformed_messages(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print("seed", SEED)
    process = psutil.Process()

    async def test(served: Served) -> None:
        async def knock() -> None:
            frame = malformed(chance)
            async with limit:
                socket = await served.connect()
                with contextlib.suppress(ConnectionError, aiohttp.ClientError):
                    is_text = isinstance(frame, str)
                    # Lone surrogates are no UTF-8, which a hostile client may send all the same.
                    data = frame.encode("utf-8", "surrogatepass") if is_text else frame
                    kind = aiohttp.WSMsgType.TEXT if is_text else aiohttp.WSMsgType.BINARY
                    await socket.send_frame(data, kind)
                assert await closed(socket) is not None, frame

        limit = asyncio.Semaphore(AT_ONCE)
        first = await served.join("a")
        beating = asyncio.create_task(beat(first))
        await asyncio.gather(*(knock() for _ in range(MALFORMED // 5)))
        before = process.memory_info().rss
        for _ in range(4):
            await asyncio.gather(*(knock() for _ in range(MALFORMED // 5)))
        assert process.memory_info().rss - before < MOST_GROWTH
        second = await served.join("b")
        for socket in (first, second):
            assert await receive(socket) == messages.Prepare(round=0, ports=1)
        assert served.events.count("agent_joined") == 2
        beating.cancel()

    with_server(tmp_path, test, seconds=100)


def test_strangers_who_stay_are_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_port, "HELLO_SECONDS", 1.0)
    chance = random.Random(SEED)

    async def test(served: Served) -> None:
        async def stay(beginning: bytes) -> None:
            async with limit:
                reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
                writer.write(beginning)
                with contextlib.suppress(ConnectionError):
                    answer = await reader.read()  # until it is closed
                    assert not answer or answer.startswith((b"HTTP/1.1 40", b"HTTP/1.0 40"))
                writer.close()

        limit = asyncio.Semaphore(STRANGERS // 5)
        first = await served.join("a")
        beating = asyncio.create_task(beat(first))
        beginnings = [b"", b"G", b"GET /agent HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]
        noise = [chance.randbytes(chance.randrange(1, 100)) for _ in range(STRANGERS - 4)]
        await asyncio.gather(*(stay(beginning) for beginning in beginnings + noise))
        assert served.events == ["agent_joined"]
        await served.join("b")
        beating.cancel()
        assert await receive(first) == messages.Prepare(round=0, ports=1)

    with_server(tmp_path, test)
