"""`tfrun join` on its way in: what keeps it out, and what it says of that; over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from control_port import TOKEN, Served, prepare, receive, serving

import tfrun
from tfrun.cluster.address import Address
from tfrun.control.placement import Whereabouts
from tfrun.control.protocol import messages, tls, wire
from tfrun.control.server import ControlServer
from tfrun.job.errors import TfrunError, UsageError
from tfrun.job.timeouts import Timeouts
from tfrun.launcher import waiting
from tfrun.launcher.join import join as module
from tfrun.launcher.join.enrolment import Enrolment
from tfrun.launcher.join.join import Join, Joining

SECONDS = 20
NOT_IN = "TFRUN-303: the job has not let this machine in for 0 s"
ENROL = {"name": "n", "identity": "i", "slots": 1, "version": tfrun.__version__}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"TRY_SECONDS": 0.05, "ANSWER_SECONDS": 0.2}.items():
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(waiting, "SAY_SECONDS", 0.0)


def kept_out(port: int, token: str = TOKEN, host: str = "127.0.0.1", **more) -> tuple[str, str]:
    """Returns the error, and what a person was told before it."""
    said: list[str] = []
    address = Address(host=host, port=port)
    joining = Joining(address=address, token=token, slots=1, timeout=0.4, **more)

    async def run() -> None:
        await asyncio.wait_for(Join(joining, said.append)._get_in(), SECONDS)

    with pytest.raises(TfrunError) as caught:
        asyncio.run(run())
    return str(caught.value), "\n".join(said)


@contextlib.contextmanager
def listening(answer: bytes | None):
    """A port of something else; None says nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
        writer.close()

    ready, ended = threading.Event(), threading.Event()
    found: list[int] = []

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        found.append(server.sockets[0].getsockname()[1])
        ready.set()
        await asyncio.to_thread(ended.wait)
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    ready.wait(SECONDS)
    try:
        yield found[0]
    finally:
        ended.set()
        thread.join(SECONDS)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return held.getsockname()[1]


def test_nobody_listens() -> None:
    error, said = kept_out(free_port())
    assert error.startswith(f"{NOT_IN}: connection refused")
    assert "waiting for 127.0.0.1:" in said and "connection refused: nothing listens there" in said


def test_a_name_that_does_not_resolve() -> None:
    # How long that takes is the resolver's: it may be past the deadline before a line is due.
    error, _ = kept_out(1, host="no-such-host.invalid")
    assert error.startswith(f"{NOT_IN}: its name does not resolve")


def test_something_that_accepts_and_says_nothing() -> None:
    with listening(None) as port:
        error, _ = kept_out(port)
    assert error.startswith(f"{NOT_IN}: it accepts the connection and is silent")


def test_something_else_listens() -> None:
    with listening(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        error, _ = kept_out(port)
    assert "TFRUN-303" in error
    with listening(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") as port:
        error, _ = kept_out(port)
    assert "what listens there is not tfrun serve (HTTP 404)" in error


Test = Callable[[Served, int, Enrolment], Awaitable[None]]


@contextlib.asynccontextmanager
async def a_desk(directory: Path, context=None) -> AsyncIterator[tuple[Served, int, Enrolment]]:
    """A controller of two workers, "a" and "b", at whose port machines may join by hand."""
    known = Whereabouts(places=frozenset({"a", "b"}), expected={"a", "b"})
    async with serving(directory, Timeouts(), 2, known, "ab") as served:
        desk = Enrolment(controller=served.controller, whereabouts=known, own_address="10.0.0.1")
        server = ControlServer(served.controller, TOKEN, desk.answer)
        await server.start("127.0.0.1", tls=context)
        try:
            yield served, server.port, desk
        finally:
            await server.close()


def with_desk(directory: Path, test: Test, context=None) -> None:
    async def run() -> None:
        async with a_desk(directory, context) as (served, port, desk):
            await asyncio.wait_for(test(served, port, desk), SECONDS)

    asyncio.run(run())


def test_the_token_is_wrong_or_the_version_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(served: Served, port: int, desk: Enrolment) -> None:
        error, said = await asyncio.to_thread(kept_out, port, "another-token-of-length")
        assert error.startswith("TFRUN-320: the token is wrong") and not said
        error, _ = await asyncio.to_thread(kept_out, port)
        assert "TFRUN-305: it has tfrun 0.0.1, the job has " in error
        assert served.controller.runner.plan.agents == {"a", "b"} and not desk.known

    older = messages.Enrol(**{**ENROL, "version": "0.0.1"})
    monkeypatch.setattr(Join, "_enrolling", lambda self: older)
    with_desk(tmp_path, test)


def test_machines_take_the_places(tmp_path: Path) -> None:
    async def test(served: Served, port: int, desk: Enrolment) -> None:
        for identity, agent in (("i", "n"), ("k", "n-2"), ("i", "n")):
            message = messages.Enrol(**{**ENROL, "identity": identity})
            answer = await ask(served, port, message)
            assert isinstance(answer, messages.Enrolled) and answer.agent == agent
            served.controller.joined(hello(agent), lambda message: None)
        assert answer.attempt == 1
        assert served.controller.runner.round.agents == {"n", "n-2"}
        assert desk.whereabouts.addresses == {"n": "10.0.0.1", "n-2": "10.0.0.1"}
        cannot = messages.CannotRun(agent="n", reason="no script")
        assert isinstance(await ask(served, port, cannot), messages.Shutdown)
        assert desk.whereabouts.waiting["n"] == "no script"
        for bad in ({"slots": 0}, {"slots": 70000}, {"name": "a b"}, {"name": ""}):
            refused = await ask(served, port, messages.Enrol(**{**ENROL, **bad}))
            assert isinstance(refused, messages.Refused) and refused.code == "TFRUN-302"
        assert isinstance(await ask(served, port, hello("n")), messages.Refused)
        served.controller.interrupt("SIGINT")
        await served.controller.runner.ended.wait()
        over = await ask(served, port, messages.Enrol(**ENROL))
        assert isinstance(over, messages.Refused) and over.over

    with_desk(tmp_path, test)


def test_a_machine_that_comes_late_stands_by(tmp_path: Path) -> None:
    async def run() -> None:
        known = Whereabouts(expected={"a", "b"})
        async with serving(tmp_path, Timeouts(), 2, known, "ab") as served:
            desk = Enrolment(controller=served.controller, whereabouts=known, own_address="h")
            sockets = await prepare(served)
            for port, socket in enumerate(sockets, start=2000):
                ready = messages.Prepared(round=0, ports=[port], import_seconds=1.0)
                await socket.send_str(wire.encode(ready))
            for socket in sockets:
                assert isinstance(await receive(socket), messages.StartRound)
            enrolled = desk.answer(messages.Enrol(**ENROL), "10.0.0.3")
            assert isinstance(enrolled, messages.Enrolled)
            late = await served.join(enrolled.agent)
            assert await receive(late) == messages.Prepare(round=0, ports=0)
            assert served.controller.runner.plan.agents == {"a", "b"}
            assert known.addresses["n"] == "10.0.0.3" and "n" in known.expected

    asyncio.run(run())


def hello(agent: str) -> messages.Hello:
    return messages.Hello(agent=agent, host="h", pid=1, version="0", programs={})


async def ask(served: Served, port: int, message: wire.Message) -> wire.Message:
    url = f"http://127.0.0.1:{port}/join"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with served.session.post(url, data=wire.encode(message), headers=headers) as answer:
        return wire.decode(await answer.text())


def certificate(directory: Path, name: str = "127.0.0.1") -> tuple[str, str]:
    """Makes a certificate for an IP address that nobody has signed but itself."""
    cert, key = str(directory / "cert.pem"), str(directory / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=tfrun", "-addext", f"subjectAltName=IP:{name}"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)

    async def test(served: Served, port: int, desk: Enrolment) -> None:
        def joining(authority: str) -> dict:
            return {"tls": {"authority": authority}}

        error, _ = await asyncio.to_thread(kept_out, port, **joining(""))
        assert "TFRUN-320: its certificate is not trusted" in error and "--tls-ca" in error
        error, _ = await asyncio.to_thread(kept_out, port, host="localhost", **joining(cert))
        assert "TFRUN-320: its certificate is not trusted: Hostname mismatch" in error
        error, _ = await asyncio.to_thread(kept_out, port)  # speaks no TLS
        assert "TFRUN-303" in error and "--tls-ca" in error
        assert not desk.known
        address = Address(host="127.0.0.1", port=port)
        right = Joining(address=address, token=TOKEN, slots=1, timeout=5.0, **joining(cert))
        assert isinstance(await Join(right, print)._get_in(), messages.Enrolled)

    with_desk(tmp_path, test, tls.Certificate(cert=cert, key=key).context)
    with pytest.raises(UsageError, match="not a certificate and its key"):
        _ = tls.Certificate(cert=key, key=cert).context
    with pytest.raises(UsageError, match="has no certificates"):
        tls.trusting({"authority": key})
