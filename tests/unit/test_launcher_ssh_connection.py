"""One connection: with a shell in the place of ssh, which says what ssh and a host may say."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shlex
from pathlib import Path

import pytest

import tfrun
from tfrun.agent.settings import AgentSettings
from tfrun.job.spec import JobSpec, Program
from tfrun.launcher.remote_agent import FAILURE, GREETING
from tfrun.launcher.ssh.connection import SshConnection
from tfrun.launcher.waiting import Reason

TOLD = AgentSettings(spec=JobSpec(program=Program(target="t.py")), token="secret")
LINE = dataclasses.replace(TOLD, agent="10.0.0.2", url="4711").to_line()
ALLOCATED = "Allocated port 4711 for remote forward to 127.0.0.1:1"


def greeting(version: str = tfrun.__version__) -> str:
    return GREETING + json.dumps({"version": version, "python": "3", "address": "10.0.0.2"})


def converse(
    directory: Path, *, out: list[str], err: list[str], then: str = "", copy: Path | None = None
) -> tuple[Reason, SshConnection]:
    """Runs a shell that says these lines, puts what it hears into `heard`, and does `then`."""
    size = len(LINE) + (copy.stat().st_size if copy else 0)
    lines = [f"printf '%s\\n' {shlex.quote(line)}" for line in out]
    lines += [f"printf '%s\\n' {shlex.quote(line)} >&2" for line in err]
    hear = f"head -c {size} > {shlex.quote(str(directory / 'heard'))}"  # or to the end of file
    script = "\n".join([*lines, hear, then])

    async def run() -> tuple[Reason, SshConnection]:
        connection = SshConnection(
            ["sh", "-c", script],
            "python",
            directory / "log",
            lambda said, port: dataclasses.replace(TOLD, agent=said["address"], url=str(port)),
            copy,
        )
        return await connection.run(), connection

    return asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("noise", [[], ["Welcome to n2!", "x" * 100_000]])
def test_the_settings_follow_the_greeting_and_the_port(tmp_path: Path, noise: list[str]) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(b"\0\n" * 30_000)
    out = [*noise, greeting()]
    reason, connection = converse(tmp_path, out=out, err=[ALLOCATED], copy=copy)
    assert connection.told and reason.text.startswith("exit code 0")
    assert (tmp_path / "heard").read_bytes() == LINE + copy.read_bytes()
    assert ALLOCATED in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("out", "err", "code", "says"),
    [
        ([greeting("9.9.9")], [ALLOCATED], "TFRUN-305", "it has tfrun 9.9.9"),
        (
            [greeting()],
            ["Warning: remote port forwarding failed for listen port 0"],
            "TFRUN-304",
            "AllowTcpForwarding",
        ),
    ],
)
def test_a_host_that_will_not_do_hears_no_token(
    tmp_path: Path, out: list[str], err: list[str], code: str, says: str
) -> None:
    reason, connection = converse(tmp_path, out=out, err=err)
    assert reason.permanent and reason.code == code and says in reason.text
    assert not connection.told
    assert (tmp_path / "heard").read_bytes() == b""


def test_what_a_host_says_of_itself_is_the_reason(tmp_path: Path) -> None:
    said = FAILURE + json.dumps({"code": "TFRUN-305", "what": "no such script"})
    then = f"printf '%s\\n' {shlex.quote(said)}; exit 1"
    reason, _ = converse(tmp_path, out=[greeting()], err=[ALLOCATED], then=then)
    assert reason == Reason(text="no such script", permanent=True, code="TFRUN-305")
