"""The line to the agent over a real socket pair, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

HEAD = (
    "import sys, os\nfrom tfrun.job.reports import Done, EndedAt, FitEnd, WorkerNotice\n"
    "from tfrun.process import channel\nchannel.open_channel(int(sys.argv[1]))\n"
)
DONE = {"kind": "done", "collectives": None}
SECONDS = 20


@contextlib.contextmanager
def worker(code: str) -> Iterator[tuple[socket.socket, subprocess.Popen[str]]]:
    """Runs code that has opened the channel; yields the agent's side and the process."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(SECONDS)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", HEAD + code, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        try:
            yield ours, process
        finally:
            process.kill()
            process.communicate()


def lines(line: socket.socket) -> list[dict]:
    """Reads the line to its end; each line has to be whole JSON."""
    data = b""
    while piece := line.recv(1 << 20):
        data += piece
    assert data.endswith(b"\n") or not data
    return [json.loads(text) for text in data.splitlines()]


def reports(code: str) -> list[dict]:
    """Returns what the code reports; it has to end well."""
    with worker(code) as (line, process):
        received = lines(line)
        out, err = process.communicate(timeout=SECONDS)
        assert (process.returncode, err) == (0, ""), out
        return received


def test_reports_arrive_in_order() -> None:
    sent = "for i in range(100): channel.emit(FitEnd(steps=i, seconds=1, logs={'loss': 0.5}))"
    assert reports(sent) == [
        {"kind": "fit_end", "steps": i, "seconds": 1, "logs": {"loss": 0.5}} for i in range(100)
    ]


def test_numpy_scalars_are_numbers() -> None:
    code = """
import numpy as np
logs = dict(a=np.float32(0.5), b=np.int64(3), c=np.bool_(True), d=np.array([2.5]),
            e=np.array(7), f=np.arange(3), g=[np.float16(1)])
channel.emit(FitEnd(logs=logs))
"""
    report = reports(code)[0]["logs"]
    assert {key: report[key] for key in "abcdeg"} == {
        **{"a": 0.5, "b": 3, "c": True, "d": 2.5, "e": 7},
        "g": [1.0],
    }
    assert report["f"] == "[0 1 2]"


def test_anything_else_is_text() -> None:
    code = "channel.emit(FitEnd(logs=dict(a=b'1', b={1}, c=Exception('e'), d=None)))"
    assert reports(code)[0]["logs"] == {"a": "b'1'", "b": "{1}", "c": "e", "d": None}


@pytest.mark.parametrize("value", ["{(1, 2): 3}", "{b'k': 1}", "{0: loop}"])
def test_emit_never_raises(value: str) -> None:
    (report,) = reports(f"loop = []; loop.append(loop)\nchannel.emit(FitEnd(logs={value}))")
    assert report["kind"] == "fit_end"


def test_outside_a_job_and_in_children_emit_is_silent() -> None:
    code = """
if os.fork() == 0:
    assert not channel.is_open()
    channel.emit(WorkerNotice(text="from the child"))
    channel.wait_for("release")
    os._exit(0)
os.wait()
channel.emit(WorkerNotice(text="from the worker"))
"""
    assert reports(code) == [{"kind": "notice", "text": "from the worker"}]
    silent = "from tfrun.job.reports import EndedAt; from tfrun.process import channel; "
    silent += "channel.emit(EndedAt(step=1)); channel.wait_for('release')"
    subprocess.run([sys.executable, "-c", silent], check=True, timeout=SECONDS)


FLOOD = """
import time
start = time.monotonic()
for i in range(5000): channel.emit(FitEnd(steps=i, logs={{"filler": "x" * {size}}}))
print(time.monotonic() - start, flush=True)
"""


@pytest.mark.parametrize(
    "size",
    [
        100,
        pytest.param(300_000),
    ],
)
def test_nobody_reading_never_blocks_and_cuts_no_report(size: int) -> None:
    """The agent is busy: reports are lost, but each that arrives is whole, "done" included."""
    code = FLOOD.format(size=size).replace("5000", "5000" if size < 1000 else "20")
    code += "channel.emit(Done(collectives=None))\n"
    with worker(code) as (line, process):
        assert process.stdout is not None
        assert float(process.stdout.readline()) < 5.0
        received = lines(line)
    assert received[-1] == DONE
    assert 0 < len(received) < 5001
    steps = [report["steps"] for report in received[:-1]]
    assert steps == sorted(steps)


def test_an_agent_that_has_gone_is_no_error() -> None:
    with worker(
        "sys.stdin.readline()\nchannel.emit(EndedAt(step=1))\nchannel.emit(Done(collectives=None))\n"
    ) as (
        line,
        process,
    ):
        line.close()
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize(
    "said",
    [[b"release\n"], [b"go\n", b"release\n"], [b"rel", b"ease\n"], []],
    ids=["at once", "after another word", "in two pieces", "gone"],
)
def test_the_release_is_waited_for(said: list[bytes]) -> None:
    with worker("channel.emit(Done(collectives=None))\nchannel.wait_for('release')\n") as (
        line,
        process,
    ):
        assert json.loads(line.recv(4096)) == DONE
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
        for word in said:
            line.send(word)
        if not said:
            line.shutdown(socket.SHUT_WR)
        assert process.wait(timeout=SECONDS) == 0


def test_waiting_has_a_limit() -> None:
    start = time.monotonic()
    assert reports("channel.wait_for('go', 0.2)\nchannel.emit(EndedAt(step=1))") == [
        {"kind": "ended_at", "step": 1}
    ]
    assert time.monotonic() - start < 10


def test_what_the_channel_imports_is_light() -> None:
    code = "import sys, tfrun.process.channel\nassert not {'numpy', 'aiohttp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS, env={**os.environ})


def test_a_script_that_closes_all_that_is_open_comes_to_its_end() -> None:
    """As a daemon does; a thread that listens is not woken by that."""
    code = """
import threading, time
channel.when("never", print)
while channel._listener is None or not channel._listener.is_alive(): time.sleep(0.01)
time.sleep(0.2)  # until it listens: if it does not yet, the test says less
os.closerange(3, 4096)
channel.emit(Done(collectives=None))
channel.wait_for("release")
os._exit(7)
"""
    with worker(code) as (_, process):
        assert process.wait(SECONDS) == 7
