"""The status API over a real port: what it shows, what it never shows, and that nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import aiohttp
import pytest
from watched_run import OWNER, Watched, with_run

SECRET = "not for the net"


def test_status_and_the_page_are_served_with_their_policy(tmp_path: Path) -> None:
    async def test(run: Watched) -> None:
        answer, body = await run.get("/status")
        assert json.loads(body) == run.view
        page, text = await run.get("/")
        for one in (answer, page, (await run.get("/page/none.js"))[0]):
            policy = one.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert one.headers["X-Content-Type-Options"] == "nosniff"
            assert one.headers["Cache-Control"] == "no-store"
        assert b"http:" not in text and b"https:" not in text  # nothing from elsewhere
        for name in ("page.css", "page.js"):
            answer, _ = await run.get(f"/page/{name}")
            assert answer.status == 200

    with_run(tmp_path, test)


@pytest.mark.parametrize(
    "path",
    [
        "/logs/../job.json",
        "/logs/..%2Fjob.json",
        "/logs/..%2f..%2fsecret.log",
        "/logs/%2e%2e%2fjob.json",
        "/logs/..%5Cjob.json",
        "/logs/%2Fetc%2Fpasswd",
        "/logs//etc/passwd",
        "/logs/.hidden.log",
        "/logs/link.log",
        "/logs/linked.log",
        "/logs/pipe.log",
        "/logs/folder.log",
        "/logs/a.log%00",
        "/logs/a.log%00.log",
        "/logs/a.log%0a",
        "/logs/job.json",
        "/logs/",
        "/page/../watch.py",
        "/page/..%2fwatch.py",
        "/page/%2e%2e/access.py",
        "/page/__init__.py",
        "/page/",
        "/run/logs/a.log",
    ],
)
def test_no_other_file_can_be_read(tmp_path: Path, path: str) -> None:
    async def test(run: Watched) -> None:
        logs = run.run_dir / "logs"
        outside = tmp_path / "secret.log"
        for file in (outside, run.run_dir / "job.json", logs / ".hidden.log", logs / "job.json"):
            file.write_text(SECRET)
        (logs / "a.log").write_text("fine")
        (logs / "link.log").symlink_to(outside)
        (logs / "linked.log").symlink_to("../job.json")
        (logs / "folder.log").mkdir()
        os.mkfifo(logs / "pipe.log")
        assert (await run.get("/logs/a.log"))[1] == b"fine"
        answer, body = await run.get(path)
        assert answer.status in (401, 404), path  # 401: it is no route at all
        assert SECRET.encode() not in body and b"root:" not in body and b"import" not in body
        listed = json.loads((await run.get("/logs"))[1])["logs"]
        assert [log["name"] for log in listed] == ["a.log"]

    with_run(tmp_path, test)


def test_a_folder_of_logs_that_is_a_link_is_none(tmp_path: Path) -> None:
    async def test(run: Watched) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "a.log").write_text(SECRET)
        (run.run_dir / "logs").rmdir()
        (run.run_dir / "logs").symlink_to(outside)
        assert (await run.get("/logs/a.log"))[0].status == 404
        assert json.loads((await run.get("/logs"))[1]) == {"logs": []}

    with_run(tmp_path, test)


def test_pieces_of_a_log(tmp_path: Path) -> None:
    async def test(run: Watched) -> None:
        text = "".join(f"line {number}\n" for number in range(20_000)).encode()
        (run.run_dir / "logs" / "worker-0.log").write_bytes(text)

        async def piece(query: str) -> tuple[int, bytes]:
            answer, body = await run.get(f"/logs/worker-0.log{query}")
            assert answer.status == 200 and answer.content_type == "text/plain"
            assert int(answer.headers["X-Log-Size"]) == len(text)
            return int(answer.headers["X-Log-Start"]), body

        assert await piece("") == (len(text) - (1 << 16), text[-(1 << 16) :])
        assert await piece("?bytes=7") == (len(text) - 7, text[-7:])
        assert await piece("?start=6&bytes=8") == (6, text[6:14])
        assert await piece(f"?start={len(text)}") == (len(text), b"")
        assert await piece(f"?start={len(text) + 9}") == (len(text), b"")
        for wrong in ("?start=-1", "?bytes=x", "?start=" + "9" * 50):
            assert (await run.get(f"/logs/worker-0.log{wrong}"))[0].status == 400

    with_run(tmp_path, test)


def numbers(events: list[dict]) -> list[int]:
    return [event["n"] for event in events]


def test_events_from_an_offset_are_complete(tmp_path: Path) -> None:
    async def test(run: Watched) -> None:
        path = run.run_dir / "events.jsonl"

        async def look(offset: int, more: str = "") -> dict:
            return json.loads((await run.get(f"/events?offset={offset}{more}"))[1])

        assert (await look(0))["events"] == []
        for n in range(3):
            run.events.add("round", n=n)
        first = await look(0)
        assert numbers(first["events"]) == [0, 1, 2]
        with path.open("a") as file:
            file.write('{"event": "half", ')  # a line that is still being written
        assert (await look(first["offset"]))["events"] == []
        with path.open("a") as file:
            file.write('"n": 3}\nnot JSON\n')
        run.events.add("progress", n=4)
        run.events.add("end", n=5)
        second = await look(first["offset"])
        assert numbers(second["events"]) == [3, 4, 5] and not second["anew"]
        assert numbers((await look(first["offset"], "&without=progress,half"))["events"]) == [5]
        # An offset that was of another file: from the beginning, and it says so.
        for wrong in (first["offset"] - 1, 10**9):
            anew = await look(wrong)
            assert anew["anew"] and numbers(anew["events"]) == [0, 1, 2, 3, 4, 5]

    with_run(tmp_path, test)


def test_a_long_history_comes_in_pieces_of_whole_events(tmp_path: Path) -> None:
    async def test(run: Watched) -> None:
        many = 30_000
        for n in range(many):
            run.events.add("notice", n=n, text="x" * 40)
        seen, offset = [], 0
        while True:
            look = json.loads((await run.get(f"/events?offset={offset}"))[1])
            seen += numbers(look["events"])
            offset = look["offset"]
            if not look["more"]:
                break
        assert seen == list(range(many))

    with_run(tmp_path, test)


async def messages(stream: aiohttp.ClientResponse, kind: str, wanted: int) -> list[dict]:
    """Reads server-sent events until `wanted` of a kind have come."""
    found: list[dict] = []
    message: dict[str, str] = {}
    while len(found) < wanted:
        line = (await stream.content.readline()).decode()
        assert line, f"the stream has ended, after {found}"
        name, _, value = line.rstrip("\n").partition(": ")
        if name:
            message[name] = value
        elif message:
            if message.get("event") == kind:
                found.append({"id": message.get("id"), "data": json.loads(message["data"])})
            message = {}
    return found


def test_who_reconnects_has_missed_nothing(tmp_path: Path) -> None:
    async def test(run: Watched) -> None:
        seen, last = [], None
        for start in range(0, 30, 10):
            headers = {**OWNER, **({"Last-Event-ID": last} if last else {})}
            async with run.session.get(run.url("/stream?offset=0"), headers=headers) as stream:
                for n in range(start, start + 5):
                    run.events.add("round", n=n)
                while not seen or seen[-1] != start + 4:
                    (message,) = await messages(stream, "events", 1)
                    seen += numbers(message["data"])
                    last = message["id"]
            for n in range(start + 5, start + 10):  # while nobody listens
                run.events.add("round", n=n)
        assert seen == list(range(25))

    with_run(tmp_path, test)


def test_the_stream_tells_what_has_changed_and_its_end_has_everything(tmp_path: Path) -> None:
    async def test(run: Watched) -> None:
        async with run.session.get(run.url("/stream"), headers=OWNER) as stream:
            (first,) = await messages(stream, "status", 1)
            assert first["data"] == run.view
            run.view["state"] = "failed"
            (second,) = await messages(stream, "status", 1)
            assert second["data"] == {"state": "failed"}
            run.view["state"] = "finished"
            run.events.add("job_ended", n=1)
            closing = asyncio.create_task(run.watch.close())
            rest = (await stream.content.read()).decode()  # to the end, which comes by itself
            assert '"job_ended"' in rest and '{"state":"finished"}' in rest
            await closing

    with_run(tmp_path, test)


def test_only_so_many_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfrun.observe.page_server.MOST_STREAMS", 1)

    async def test(run: Watched) -> None:
        async with run.session.get(run.url("/stream"), headers=OWNER) as stream:
            await messages(stream, "status", 1)
            assert (await run.get("/stream"))[0].status == 503
        deadline = asyncio.get_running_loop().time() + 5
        while True:  # the one that has gone makes room
            async with run.session.get(run.url("/stream"), headers=OWNER) as again:
                if again.status == 200:
                    return
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)

    with_run(tmp_path, test)
