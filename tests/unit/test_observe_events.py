"""The event log: strict JSON lines, whatever happens to the disk or the process."""

from __future__ import annotations

import json
import os
import subprocess
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
def test_a_full_disk_ends_the_log_not_the_job() -> None:
    log = EventLog(Path("/dev/full"))
    log.add("one")
    assert log.error is not None and "No space left" in str(log.error)
    log.add("two")
    log.close()


LIMITED = """
import resource, signal, sys
from pathlib import Path
from tfrun.observe.events import EventLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
endless = resource.RLIM_INFINITY
resource.setrlimit(resource.RLIMIT_FSIZE, (250, endless))
path = Path(sys.argv[1])
log = EventLog(path)
for number in range(20):
    log.add("x", number=number)
    if path.stat().st_size == 250:  # now somebody makes room
        resource.setrlimit(resource.RLIMIT_FSIZE, (endless, endless))
print(log.error)
"""


def test_the_last_bytes_of_a_disk_leave_no_line_glued_to_another(tmp_path: Path) -> None:
    """A write that only fits in part comes back short, without an error."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "log")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "None" not in result.stdout
    assert os.stat(tmp_path / "log").st_size == 250  # noqa: PTH116
    numbers = [event["number"] for event in read_events(tmp_path / "log")]
    assert numbers == list(range(len(numbers))) and 0 < len(numbers) < 20
    for line in (tmp_path / "log").read_text().splitlines()[: len(numbers)]:
        json.loads(line)
