"""The port on which a process says that it lives."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from tfrun.cluster.pods import health_port
from tfrun.job.errors import UsageError
from tfrun.launcher import health


def test_it_answers_while_it_lives():
    async def asked(port: int) -> list[int]:
        url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:
            async with health.served(port):
                async with session.get(f"{url}/healthz") as well, session.get(url) as other:
                    found = [well.status, other.status]
                with pytest.raises(UsageError, match="TFRUN-212: port"):
                    async with health.served(port):
                        pass
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(f"{url}/healthz")
            return found

    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
    assert asyncio.run(asked(port)) == [200, 404]


def test_the_port_is_what_the_environment_says():
    assert health_port({}) == 0
    assert health_port({"TFRUN_HEALTH_PORT": "29401"}) == 29401
    with pytest.raises(UsageError, match="TFRUN-212"):
        health_port({"TFRUN_HEALTH_PORT": "99999"})
