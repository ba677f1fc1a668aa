"""Agents that only speak: join, get ready, "start" their worker; then one worker dies.

Called with the control port, the token and how many; writes seconds as JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time

import aiohttp

from tfrun.control.protocol import messages, wire

DIES = 1  # the agent whose worker does; agent 0 has the chief
BEAT_SECONDS = 1.0


class Agents:
    """All of them, in one process."""

    def __init__(self, port: int, token: str, count: int) -> None:
        self.url = f"http://127.0.0.1:{port}/agent"
        self.token, self.count = token, count
        self.sockets: dict[int, aiohttp.ClientWebSocketResponse] = {}
        self.started: dict[int, float] = {}
        self.heard: dict[int, float] = {}
        self.all_started, self.all_heard = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}"}
        unlimited = aiohttp.TCPConnector(limit=0)
        began = time.perf_counter()
        async with aiohttp.ClientSession(headers=headers, connector=unlimited) as session:
            tasks = [asyncio.create_task(self.agent(session, n)) for n in range(self.count)]
            beating = asyncio.create_task(self.beat())
            await self.all_started.wait()
            formed = max(self.started.values()) - began
            await asyncio.sleep(BEAT_SECONDS)
            died = time.perf_counter()
            await self.say(DIES, death())
            await self.all_heard.wait()
            found = {"formed": formed, "a death heard of": max(self.heard.values()) - died}
            print(json.dumps(found), flush=True)
            await asyncio.gather(*tasks, beating)  # until it is killed: all are lost at once

    async def agent(self, session: aiohttp.ClientSession, number: int) -> None:
        async with session.ws_connect(self.url, max_msg_size=0) as socket:
            self.sockets[number] = socket
            hello = {"host": "h", "pid": 1, "version": "0", "programs": {"python": "3"}}
            await self.say(number, messages.Hello(agent=f"n{number}", **hello))
            async for frame in socket:
                await self.receive(number, wire.decode(frame.data))

    async def receive(self, number: int, message: wire.Message) -> None:
        match message:
            case messages.Prepare():
                ports = [20000 + number]
                ready = messages.Prepared(round=message.round, ports=ports, import_seconds=1.0)
                await self.say(number, ready)
            case messages.StartRound(tasks=[task]):
                self.started[number] = time.perf_counter()
                name = task["task"]
                await self.say(number, messages.WorkerStarted(round=0, task=name, pid=number + 1))
                if len(self.started) == self.count:
                    self.all_started.set()
            case messages.Leave() | messages.StopRound():
                self.heard.setdefault(number, time.perf_counter())
                if len(self.heard) == self.count:
                    self.all_heard.set()

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            for number in list(self.sockets):
                await self.say(number, messages.Heartbeat(agent=f"n{number}"))

    async def say(self, number: int, message: wire.Message) -> None:
        await self.sockets[number].send_str(wire.encode(message))


def death() -> wire.Message:
    how = {"code": -9, "out_of_memory": False, "requested": False, "tail": ""}
    return messages.WorkerExited(round=0, task=f"worker:{DIES}", time=time.time(), **how)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(Agents(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])).run())
