"""Files that are appended to while the disk is full for a time, by a limit on the file's size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from full_disk import no_file_beyond

from tfrun.control.protocol import messages
from tfrun.control.remote_logs import Copies
from tfrun.job.full_disk_appender import Appender, in_a_log
from tfrun.observe.event_lines import told
from tfrun.observe.events import EventLog, read_events


def test_a_log_goes_on_and_says_what_is_missing(tmp_path: Path) -> None:
    path, said = tmp_path / "log", []
    file = Appender(path, in_a_log, said.append)
    file.add(b"first\n")
    with no_file_beyond(10):
        file.add(b"0123456789\n")
        file.add(b"lost\n")
        assert file.lacks
    file.add(b"again\n")
    assert not file.lacks
    text = path.read_text()
    assert text == "first\n0123\n--- 12 bytes are missing here: File too large ---\nagain\n"
    assert said == [
        f"{path} is not written any more: File too large",
        f"{path} is written again; a line there says what is missing",
    ]
    file.close()
    file.add(b"late\n")
    assert path.read_text() == text


@pytest.mark.parametrize("room", range(1, 80, 7))
def test_a_mark_for_which_there_is_no_room_is_written_later(tmp_path: Path, room: int) -> None:
    path = tmp_path / "log"
    file = Appender(path, in_a_log, lambda text: None)
    with no_file_beyond(0):
        file.add(b"lost\n")
    with no_file_beyond(room):
        file.add(b"lost, too\n")
    file.add(b"again\n")
    *before, last = path.read_text().splitlines()
    mark = r"--- \d+ bytes? (is|are) missing here: .* ---"
    marks = [line for line in before if re.fullmatch(mark, line)]
    assert marks and last == "again"


def test_a_disk_that_is_full_again_and_again_is_said_a_few_times(tmp_path: Path) -> None:
    said = []
    file = Appender(tmp_path / "log", in_a_log, said.append)
    for _ in range(10):
        with no_file_beyond(0):
            file.add(b"lost\n")
        file.add(b"again\n")
    assert len(said) == 6 and "again" in said[-1]
    assert (tmp_path / "log").read_text().count("bytes are missing") == 10


def test_events_that_are_missing_are_counted(tmp_path: Path) -> None:
    path, said = tmp_path / "events.jsonl", []
    log, heard = EventLog(path, said.append), []
    log.listeners.append(lambda event: heard.append(event["event"]))
    log.add("one")
    with no_file_beyond(path.stat().st_size + 5):
        log.add("two")
        log.add("three")
    log.add("four")
    log.close()
    events = read_events(path)
    assert [event["event"] for event in events] == ["one", "missing", "four"]
    assert (events[1]["events"], events[1]["reason"]) == (2, "File too large")
    assert told(events[1]) == ("2 events could not be written here: File too large", "warning")
    assert heard == ["one", "two", "three", "four"]
    assert len(said) == 2


def test_what_other_machines_send_is_marked_as_well(tmp_path: Path) -> None:
    said = []
    copies = Copies(tmp_path, said.append)
    with no_file_beyond(3):
        copies.append(messages.Log(name="a.log", text="one\n"))
    copies.append(messages.Log(name="a.log", text="two\n"))
    copies.append(messages.Log(name="a.log", text="three\n"))
    text = (tmp_path / "a.log").read_text()
    assert text == "one\n--- 1 byte is missing here: File too large ---\ntwo\nthree\n"
    assert len(said) == 2
