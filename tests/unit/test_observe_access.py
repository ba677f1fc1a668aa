"""Who may look at a job: over a real port, as other users, other sites and with old links."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from watched_run import OWNER, TOKEN, Watched, with_run

from tfrun.observe.access import owner_of

ROUTES = (
    "/",
    "/page/page.css",
    "/status",
    "/events",
    "/stream",
    "/logs",
    "/logs/a.log",
    "/metrics",
)
AS_SOMEBODY = """
import os, socket, sys
"x".encode("idna")  # loaded while this interpreter's files can be read
os.setuid(int(sys.argv[2]))
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"GET /status HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n")
print(connection.makefile("rb").readline().decode())
"""


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"bearer {TOKEN}"},
        {"Cookie": "tfrun=x"},
    ],
)
def test_without_the_token_nothing_is_shown(tmp_path: Path, headers: dict[str, str]) -> None:
    async def test(run: Watched) -> None:
        for path in (*ROUTES, "/?key=", "/?key=wrong", "/other"):
            answer, body = await run.get(path, headers)
            assert answer.status == 401, path
            assert b"tfrun page RUN" in body and "training" not in body.decode()
        async with run.session.post(run.url("/key"), headers=headers) as answer:
            assert answer.status == 401

    with_run(tmp_path, test)


def test_a_link_lets_one_browser_in_once(tmp_path: Path) -> None:
    async def test(run: Watched) -> None:
        async with run.session.post(run.url("/key"), headers=OWNER) as answer:
            key = (await answer.json())["key"]
        answer, body = await run.get(f"/?key={key}", {})
        assert answer.status == 200 and b"<title>" in body
        cookie = answer.cookies[f"tfrun-{run.port}"]
        assert cookie["httponly"] and cookie["samesite"] == "Strict" and cookie["path"] == "/"
        assert not cookie["domain"] and not cookie["secure"]  # there is no TLS here
        assert (await run.get("/status", {}))[0].status == 200  # the session's cookie
        run.session.cookie_jar.clear()
        assert (await run.get(f"/?key={key}", {}))[0].status == 401
        stolen = {"Cookie": f"tfrun-{run.port}={cookie.value[:-1]}"}
        assert (await run.get("/status", stolen))[0].status == 401
        # Watching is all that it is good for: what acts needs what no browser sends by itself.
        own = {"Cookie": f"tfrun-{run.port}={cookie.value}"}
        assert (await run.get("/status", own))[0].status == 200
        async with run.session.post(run.url("/key"), headers=own) as answer:
            assert answer.status == 401

    with_run(tmp_path, test)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")
def test_the_jobs_user_needs_no_token_on_this_machine_and_other_users_do(tmp_path: Path) -> None:
    async def test(run: Watched) -> None:
        assert (await run.get("/status", {}))[0].status == 200
        # A page from elsewhere, whose name means this machine by now, or that embeds ours.
        for headers in (
            {"Host": f"evil.example:{run.port}"},
            {"Host": f"127.0.0.1.evil.example:{run.port}"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert (await run.get("/status", headers))[0].status == 401, headers
        async with run.session.post(run.url("/key")) as answer:
            assert answer.status == 401
        if os.getuid() != 0:
            pytest.skip("only root can be somebody else")
        for user, expected in (("0", "200"), ("65534", "401")):
            command = [sys.executable, "-S", "-c", AS_SOMEBODY, str(run.port), user]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=15
            )
            assert expected in done.stdout, done

    with_run(tmp_path, test, knows_users=True)


def test_the_owner_of_a_connection() -> None:
    def line(state: str, uid: int, inode: int) -> str:
        ends = "0100007F:1F90 0100007F:0050"
        return f" 0: {ends} {state} 00000000:00000000 00:00000000 00000000 {uid} 0 {inode} 1 0"

    ends = ("0100007F:1F90", "0100007F:0050")
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"
    assert owner_of([head, line("01", 1000, 77)], *ends) == 1000
    assert owner_of([head, line("01", 1000, 77)], *reversed(ends)) is None
    assert owner_of([line("01", 0, 0)], *ends) is None  # closed: nobody's, and not root's
    assert owner_of([line("06", 0, 77)], *ends) is None
