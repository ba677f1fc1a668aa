"""A job is found through its run directory, and asked to stop or for its stacks."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from control_port import TOKEN, hello

from tfrun.control import user_requests
from tfrun.control.controller import Controller
from tfrun.control.placement import Site, Whereabouts, make_plan
from tfrun.control.protocol import messages
from tfrun.control.round_runner import RoundRunner
from tfrun.control.server import ControlServer
from tfrun.job import control_contact
from tfrun.job.control_contact import Contact
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.observe import ask_job
from tfrun.observe.access import Access
from tfrun.observe.ask_job import NoAnswer
from tfrun.observe.events import EventLog
from tfrun.observe.monitor import Monitor
from tfrun.observe.page_server import WatchRoutes
from tfrun.observe.terminal import Terminal

STATUS_TOKEN = "another-token"


def of(port: int, **other: Any) -> Contact:
    known = {"host": socket.gethostname(), "pid": os.getpid(), "address": "127.0.0.1"}
    return Contact(**{**known, "port": port, "token": STATUS_TOKEN, **other})


def with_job(folder: Path, test: Callable[[], Any], stacks: str = "") -> list[str]:
    """Runs `test` beside a job whose one worker has such stacks; returns the signals to it."""
    spec = JobSpec(
        program=Program(target="train.py"),
        workers=WorkerRange(low=1, high=1),
        run_dir=str(folder),
    )
    signals: list[str] = []

    async def run() -> None:
        plan = make_plan(spec, [Site(agent="a", host="127.0.0.1", slots=1)])
        terminal = Terminal(prefix_all=False, chief=plan.chief)
        events = EventLog(folder / "events.jsonl")
        monitor = Monitor(events, folder)
        events.add("job", name="train")
        controller = Controller(RoundRunner(spec, plan, events, terminal, Whereabouts()), monitor)
        controller.interrupt = signals.append  # type: ignore[method-assign]
        access = Access(STATUS_TOKEN, knows_users=False)
        watch = WatchRoutes(folder, lambda heat: monitor.view(heat=heat), access)
        more = user_requests.routes(controller, monitor)
        server = ControlServer(controller, TOKEN, watch=watch, more=more)
        await server.start("127.0.0.1")
        controller.start()

        def to_agent(message: Any) -> None:
            if isinstance(message, messages.TakeStacks) and stacks:
                text = f"{stacks} of all threads" if message.threads else stacks
                taken = messages.StacksTaken(round=0, task="worker:0", text=text)
                assert member is not None
                controller.receive(member, taken)

        member = controller.joined(hello("a"), to_agent)
        try:
            with control_contact.shown(folder, of(server.port)):
                await asyncio.wait_for(asyncio.to_thread(test), 30)
            assert control_contact.read(folder) is None
        finally:
            await server.close()
            terminal.close()
            events.close()

    asyncio.run(run())
    return signals


def test_the_status_is_asked_of_the_job_itself(tmp_path: Path) -> None:
    def test() -> None:
        now = ask_job.status(tmp_path)
        assert (now["live"], now["name"], now["agents"][0]["agent"]) == (True, "train", "a")

    with_job(tmp_path, test)
    after = ask_job.status(tmp_path)
    assert (after["live"], after["state"], after["name"]) == (False, "lost", "train")


def test_stop_is_a_signal_to_the_launcher(tmp_path: Path) -> None:
    def test() -> None:
        for body in ({}, {"now": False}, {"now": True}):
            assert ask_job.ask(tmp_path, "/stop", body) == {"stopping": True}

    assert with_job(tmp_path, test) == ["SIGTERM", "SIGTERM", "SIGINT"]


def test_stacks_come_from_the_workers(tmp_path: Path) -> None:
    def test() -> None:
        answer = ask_job.ask(tmp_path, "/stacks", {}, seconds=15)
        assert answer == {"round": 0, "stacks": {"worker:0": "a stack"}}
        answer = ask_job.ask(tmp_path, "/stacks", {"threads": True}, seconds=15)
        assert answer["stacks"] == {"worker:0": "a stack of all threads"}

    with_job(tmp_path, test, "a stack")


def test_a_worker_that_does_not_answer_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_requests, "STACKS_SECONDS", 0.2)

    def test() -> None:
        assert ask_job.ask(tmp_path, "/stacks", {})["stacks"] == {"worker:0": ""}

    with_job(tmp_path, test)


@pytest.mark.parametrize("token", ["", "wrong", STATUS_TOKEN[:-1]])
def test_only_the_status_token_stops_a_job(tmp_path: Path, token: str) -> None:
    def test() -> None:
        known = control_contact.read(tmp_path)
        assert known is not None
        control_contact.write(tmp_path, of(known.port, token=token))
        for path in ("/stop", "/stacks"):
            with pytest.raises(NoAnswer, match="401"):
                ask_job.ask(tmp_path, path, {})
        control_contact.write(tmp_path, known)
        with pytest.raises(NoAnswer, match="400"):
            ask_job.ask(tmp_path, "/stop", [])  # type: ignore[arg-type]
        for path, body in (
            ("/stop", {"now": "yes"}),
            ("/stop", {"now": 1}),
            ("/stacks", {"threads": None}),
        ):
            with pytest.raises(NoAnswer, match="400"):
                ask_job.ask(tmp_path, path, body)

    assert with_job(tmp_path, test) == []


def test_only_its_user_can_read_how_it_is_reached(tmp_path: Path) -> None:
    with control_contact.shown(tmp_path, of(1)):
        mode = (tmp_path / control_contact.NAME).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
        assert control_contact.read(tmp_path) == of(1)
        # Another job has begun in the directory: what it has written stays.
        control_contact.write(tmp_path, of(2))
    assert control_contact.read(tmp_path) == of(2)
    assert [path.name for path in tmp_path.iterdir()] == [control_contact.NAME]


@pytest.mark.parametrize(
    ("other", "url"),
    [
        ({}, "http://127.0.0.1:80"),
        ({"address": "0.0.0.0"}, "http://127.0.0.1:80"),
        ({"address": "::1"}, "http://[::1]:80"),
        ({"host": "far"}, None),
        ({"host": "far", "address": "0.0.0.0"}, "http://far:80"),
        ({"host": "far", "address": "10.0.0.1", "tls": "PEM"}, "https://10.0.0.1:80"),
    ],
    ids=str,
)
def test_where_it_is_asked(other: dict[str, Any], url: str | None) -> None:
    assert of(80, **other).url == url


def test_a_launcher_that_has_ended_is_not_asked(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=30)
    control_contact.write(tmp_path, of(80, pid=process.pid))
    known = control_contact.read(tmp_path)
    assert known is not None
    assert known.is_gone
    assert not of(80, pid=process.pid, host="far").is_gone  # nobody can know from here
    with pytest.raises(NoAnswer, match="no job runs there"):
        ask_job.ask(tmp_path, "/status")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"host": 1}', "\x00"])
def test_a_broken_file_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / control_contact.NAME).write_text(text)
    assert control_contact.read(tmp_path) is None


def test_a_port_that_nobody_serves_any_more(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    control_contact.write(tmp_path, of(port))
    with pytest.raises(NoAnswer, match="does not answer"):
        ask_job.ask(tmp_path, "/status")
