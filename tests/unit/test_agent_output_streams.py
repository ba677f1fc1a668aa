"""A worker's streams: real pipes, a real terminal, real files, a full disk."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tfrun.agent.output_streams import TAIL_LINES, NoiseFilter, OutputPump, WorkerLog

SECONDS = 20
NOISE = "I0000 00:00:1763640000.123456    1234 port.cc:153] oneDNN custom operations are on.\n"


class Sink:
    """Collects what is shown, and what is complained of."""

    def __init__(self, path: Path) -> None:
        self.shown: list[str] = []
        self.complaints: list[str] = []
        self.log = WorkerLog(path, self.complaints.append)

    @property
    def text(self) -> str:
        return "".join(self.shown)


def pumped(
    path: Path,
    write: Callable[[int], None],
    *,
    hide_noise: bool = False,
    open_pair: Callable[[], tuple[int, int]] = os.pipe,
) -> tuple[Sink, str]:
    """Lets `write` write (in a thread) and close; returns what came out, and the tail."""

    async def run() -> tuple[Sink, str]:
        ours, theirs = open_pair()
        sink = Sink(path)
        pump = OutputPump(ours, sink.log, sink.shown.append, hide_noise=hide_noise)

        def work() -> None:
            write(theirs)
            os.close(theirs)

        await asyncio.to_thread(work)
        await asyncio.wait_for(pump.closed.wait(), SECONDS)
        pump.close()
        sink.log.close()
        return sink, pump.tail

    return asyncio.run(run())


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def test_a_pipe_goes_to_the_log_and_to_the_viewer(tmp_path: Path) -> None:
    data = os.urandom(1000).hex().encode() * 500  # a megabyte: many times a pipe's buffer
    sink, _ = pumped(tmp_path / "log", lambda fd: write_all(fd, data))
    assert (tmp_path / "log").read_bytes() == data
    assert sink.text == data.decode()


def test_a_terminal_goes_to_the_log_and_to_the_viewer(tmp_path: Path) -> None:
    """Its other side's end is an error (EIO) on Linux, not an empty read."""
    sink, _ = pumped(
        tmp_path / "log", lambda fd: write_all(fd, b"1/2\r2/2\n"), open_pair=pty.openpty
    )
    assert sink.text == "1/2\r2/2\r\n"
    assert (tmp_path / "log").read_bytes() == b"1/2\r2/2\r\n"


def test_characters_that_are_cut_are_put_together(tmp_path: Path) -> None:
    text = "naïve ✓ 😀\n"

    def write(fd: int) -> None:
        for byte in text.encode():
            os.write(fd, bytes([byte]))

    sink, _ = pumped(tmp_path / "log", write)
    assert sink.text == text


def test_bytes_that_are_no_text_are_shown_as_such_and_logged_as_they_are(tmp_path: Path) -> None:
    sink, _ = pumped(tmp_path / "log", lambda fd: write_all(fd, b"a\xffb\xe2\x82"))
    assert sink.text == "a\ufffdb\ufffd"
    assert (tmp_path / "log").read_bytes() == b"a\xffb\xe2\x82"


def test_noise_is_in_the_log_only(tmp_path: Path) -> None:
    text = f"a\n{NOISE}b\n"
    sink, tail = pumped(tmp_path / "log", lambda fd: write_all(fd, text.encode()), hide_noise=True)
    assert (tmp_path / "log").read_text() == text
    assert sink.text == tail == "a\nb\n"


@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_where_in_the_graph_is_noise_after_noise_alone(pieces: int) -> None:
    warning = "W0000 00:00:1795311321.477358   30502 rendezvous.cc:412] aborting: [PeerGone]\n"
    node = "\t [[{{function_node __inference_one_step_840}}{{node Assert}}]]\n"
    text = f"a\n{warning}{node}b: [PeerGone]\n{node}{warning}c\n{node}"
    noise, shown = NoiseFilter(), ""
    size = -(-len(text) // pieces)
    for start in range(0, len(text), size):
        shown += noise.feed(text[start : start + size])
    assert shown + noise.flush() == f"a\nb: [PeerGone]\n{node}c\n{node}"


def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(5000)]
    _, tail = pumped(tmp_path / "log", lambda fd: write_all(fd, "".join(lines).encode()))
    assert tail == "".join(lines[-TAIL_LINES:])


def test_the_tail_has_a_last_line_without_its_end(tmp_path: Path) -> None:
    _, tail = pumped(tmp_path / "log", lambda fd: write_all(fd, b"a\nlast"), hide_noise=True)
    assert tail == "a\nlast"


def test_the_tail_has_a_last_line_that_looked_like_noise(tmp_path: Path) -> None:
    sink, tail = pumped(
        tmp_path / "log", lambda fd: write_all(fd, b"a\n3 files are missing"), hide_noise=True
    )
    assert sink.text == "a\n3 files are missing"
    assert tail == sink.text


def test_the_tail_counts_lines_not_pieces(tmp_path: Path) -> None:
    text = "the first line\n" + "x" * 200 + "\n"

    def write(fd: int) -> None:
        for byte in text.encode():
            os.write(fd, bytes([byte]))
            time.sleep(0.0005)  # so that pieces arrive, as they do from a slow writer

    _, tail = pumped(tmp_path / "log", write)
    assert tail == text


def test_the_tail_is_bounded(tmp_path: Path) -> None:
    data = b"\x00" * 10_000_000  # six characters each in JSON
    _, tail = pumped(tmp_path / "log", lambda fd: write_all(fd, data))
    assert len(tail) <= 100_000


def test_a_hidden_stream_goes_to_the_log_only(tmp_path: Path) -> None:
    async def run() -> Sink:
        ours, theirs = os.pipe()
        sink = Sink(tmp_path / "log")
        pump = OutputPump(ours, sink.log, sink.shown.append, hide_noise=False)
        pump.hide()
        os.write(theirs, b"news\n")
        os.close(theirs)
        await asyncio.wait_for(pump.closed.wait(), SECONDS)
        sink.log.close()
        return sink

    assert asyncio.run(run()).text == ""
    assert (tmp_path / "log").read_text() == "news\n"


def test_closing_reads_what_is_still_there(tmp_path: Path) -> None:
    """A child in another session holds the stream open: what came so far is enough."""

    async def run() -> str:
        ours, theirs = os.pipe()
        sink = Sink(tmp_path / "log")
        pump = OutputPump(ours, sink.log, sink.shown.append, hide_noise=True)
        os.write(theirs, b"a\nb\n12")
        pump.close()  # before the loop had a chance to read
        pump.close()
        assert pump.closed.is_set()
        os.close(theirs)
        sink.log.close()
        return sink.text

    assert asyncio.run(run()) == "a\nb\n12"


def test_closing_does_not_wait_for_one_that_writes_for_ever(tmp_path: Path) -> None:
    async def run() -> float:
        ours, theirs = os.pipe()
        sink = Sink(tmp_path / "log")
        pump = OutputPump(ours, sink.log, None, hide_noise=True)
        writers = [subprocess.Popen(["yes"], stdout=theirs) for _ in range(2)]
        os.close(theirs)

        def kill() -> None:
            for writer in writers:
                writer.kill()

        end = threading.Timer(20.0, kill)
        end.start()
        while not (tmp_path / "log").stat().st_size:
            await asyncio.sleep(0.01)
        start = time.monotonic()
        pump.close()
        seconds = time.monotonic() - start
        end.cancel()
        kill()
        for writer in writers:
            writer.wait()
        sink.log.close()
        return seconds

    assert asyncio.run(run()) < 10.0


def test_both_streams_share_a_log(tmp_path: Path) -> None:
    log = WorkerLog(tmp_path / "log", pytest.fail)
    log.write(b"a\n")
    other = WorkerLog(tmp_path / "log", pytest.fail)
    other.write(b"b\n")
    log.write(b"c\n")
    log.close()
    log.close()
    log.write(b"late\n")
    other.close()
    assert (tmp_path / "log").read_bytes() == b"a\nb\nc\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_is_said_once_and_stops_nothing() -> None:
    sink, _ = pumped(Path("/dev/full"), lambda fd: write_all(fd, b"x" * 300_000))
    assert sink.text == "x" * 300_000
    (complaint,) = sink.complaints
    assert "/dev/full is not written any more: No space left on device" in complaint
