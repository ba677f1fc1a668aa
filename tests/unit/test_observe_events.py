"""The event log: strict JSON lines, whatever happens to the disk or the process."""

from __future__ import annotations

import resource
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.observe.events import EventLog, read_events


def test_events_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    before = time.time()
    log.add("one", text="é ✓ 😀 \u2028 \x85 \n \udce9", nested={"a": [1, None]})
    log.add("two")
    log.close()
    log.close()
    log.add("late")
    first, second = read_events(path)
    assert first["event"] == "one" and second == {"time": second["time"], "event": "two"}
    assert first["text"] == "é ✓ 😀 \u2028 \x85 \n \udce9"
    assert before - 1 < first["time"] <= time.time() + 1
    assert path.read_bytes().isascii()


@pytest.mark.parametrize("name", ["event", "time", "self"])
def test_a_field_cannot_pose_as_the_event(tmp_path: Path, name: str) -> None:
    """Fields come from workers."""
    log = EventLog(tmp_path / "log")
    log.add("real", **{name: "false"})
    log.close()
    (event,) = read_events(tmp_path / "log")
    assert event["event"] == "real"
    assert isinstance(event["time"], float)


def test_a_log_is_continued(tmp_path: Path) -> None:
    for name in ("one", "two"):
        log = EventLog(tmp_path / "log")
        log.add(name)
        log.close()
    assert [event["event"] for event in read_events(tmp_path / "log")] == ["one", "two"]


@given(st.integers(0, 10_000))
def test_a_line_that_was_cut_off_is_left_out(tmp_path_factory, where: int) -> None:
    lines = b"".join(b'{"time": 1.5, "event": "e%d"}\n' % number for number in range(4))
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    cut = lines[: where % (len(lines) + 1)]
    path.write_bytes(cut)
    events = [event["event"] for event in read_events(path)]
    whole = cut.count(b"\n") + cut.endswith(b"}")
    assert events == [f"e{number}" for number in range(whole)]


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")

    def write(number: int) -> None:
        for _ in range(200):
            log.add("x", number=number, filler="y" * 1000)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert len((tmp_path / "log").read_text().splitlines()) == len(read_events(tmp_path / "log"))
    assert len(read_events(tmp_path / "log")) == 800


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_disk_that_stays_full_is_said_once() -> None:
    said = []
    log = EventLog(Path("/dev/full"), said.append)
    log.add("one")
    log.add("two")
    log.close()
    assert said == ["/dev/full is not written any more: No space left on device"]


def test_the_last_bytes_of_a_disk_leave_no_line_glued_to_another(tmp_path: Path) -> None:
    """A write that only fits in part comes back short, without an error."""
    path, before = tmp_path / "log", resource.getrlimit(resource.RLIMIT_FSIZE)
    log = EventLog(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (250, before[1]))
    try:
        for number in range(20):
            log.add("x", number=number)
            if path.stat().st_size == 250:  # now somebody makes room
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    events = read_events(path)
    (at,) = (place for place, event in enumerate(events) if event["event"] == "missing")
    assert events[at]["events"] == 1 and at > 1
    assert [event.get("number") for event in events] == [*range(at), None, *range(at + 1, 20)]
