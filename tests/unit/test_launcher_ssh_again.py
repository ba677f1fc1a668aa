"""Hosts that were lost are tried again: the backend, with a shell in the place of ssh."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import tfrun
from tfrun.agent.settings import AgentSettings
from tfrun.job.spec import JobSpec, Program
from tfrun.launcher.remote_agent import GREETING
from tfrun.launcher.ssh import backend as ssh
from tfrun.launcher.ssh.backend import SshBackend
from tfrun.launcher.ssh.command import Remote

SECONDS = 20
HELLO = GREETING + json.dumps({"version": tfrun.__version__, "python": "3", "address": ""})
# What the n-th ssh does: the number is in the file `count`.
SHELL = """
n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count
case $n in
{cases}
esac
"""
JOINS = f"printf '%s\\n' '{HELLO}'; echo 'Allocated port 1 for remote forward to x' >&2; read c;"
NO_PYTHON = "echo 'sh: python: not found' >&2; exit 127"


def with_backend(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    cases: list[str],
    test: Callable[[SshBackend], Awaitable[None]],
) -> None:
    """Runs `test` with a backend whose connections do one case after the other."""
    text = SHELL.format(cases="\n".join(f"{n}) {case} ;;" for n, case in enumerate(cases)))
    command = ["sh", "-c", f"cd {directory}; {text}"]
    monkeypatch.setattr(ssh, "ssh_command", lambda *_, **__: command)
    monkeypatch.setattr(ssh, "RETRY_SECONDS", (0.01, 0.02))
    (directory / "logs").mkdir()
    spec = JobSpec(program=Program(target="t.py"), run_dir=str(directory))
    remote = Remote(python="python", directory="/")

    async def run() -> None:
        backend = SshBackend({"n1": "n1"}, {"n1": 1}, spec, remote)
        await backend.start(1, AgentSettings(token="t", spec=spec))
        try:
            await asyncio.wait_for(test(backend), SECONDS)
        finally:
            await backend.close(0)

    asyncio.run(run())


async def is_waiting_for(backend: SshBackend, text: str) -> None:
    while text not in backend.whereabouts.waiting["n1"]:
        await asyncio.sleep(0.01)


def test_a_host_that_was_there_may_say_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(backend: SshBackend) -> None:
        backend.whereabouts.joined.add("n1")  # as the controller notes it
        for how in ("exit code 3", "exit code 4"):
            assert how in (await backend.agent_ended()).how
        await is_waiting_for(backend, "agent is starting")
        assert backend.whereabouts.expected == {"n1"}

    later = f"{JOINS} exit 4"
    cases = [f"{JOINS} exit 3", NO_PYTHON, NO_PYTHON, later, f"{JOINS} cat"]
    with_backend(tmp_path, monkeypatch, cases, test)
    assert (tmp_path / "count").read_text().strip() == "5"


def test_a_host_that_was_never_there_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(backend: SshBackend) -> None:
        end = await backend.agent_ended()
        assert (end.code, "cannot be run there" in end.how) == ("TFRUN-305", True)
        assert not backend.whereabouts.expected

    with_backend(tmp_path, monkeypatch, [NO_PYTHON, "exit 9"], test)
    assert (tmp_path / "count").read_text().strip() == "1"


def test_each_process_of_an_agent_has_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(backend: SshBackend) -> None:
        backend.whereabouts.joined.add("n1")
        await backend.agent_ended()
        await backend.agent_ended()

    heard = JOINS.replace("read c;", "head -n 1 >> heard;")
    with_backend(tmp_path, monkeypatch, [f"{heard} exit 1", f"{heard} exit 1", "sleep 9"], test)
    told = [
        AgentSettings.from_line(line) for line in (tmp_path / "heard").read_bytes().splitlines()
    ]
    assert [(each.agent, each.attempt) for each in told] == [("n1", 0), ("n1", 1)]


def test_the_jobs_end_is_no_reason_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(backend: SshBackend) -> None:
        await is_waiting_for(backend, "agent is starting")
        backend.whereabouts.joined.add("n1")  # as the controller notes it
        began = asyncio.get_running_loop().time()
        await backend.close(10.0)
        assert asyncio.get_running_loop().time() - began < 5  # when the agent has left

    with_backend(tmp_path, monkeypatch, [f"{JOINS} cat", f"{JOINS} cat"], test)
    assert (tmp_path / "count").read_text().strip() == "1"
