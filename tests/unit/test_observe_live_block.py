"""The live block on a real pseudo-terminal: nothing of the user's output is lost to it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

SHOWS = """
import sys, time
from tfrun.observe.terminal import Terminal
from tfrun.observe.job_view import reduce

def view():
    began = time.time()
    step = {"epoch": 0, "in_epoch": 30, "step": 30, "steps": 30, "seconds": 3.0, "workers": 2}
    split = {"input": 0.01, "compute": 0.06, "communication": 0.02, "other": 0.01}
    more = {"step_seconds": 0.1, "split": split, "logs": {"loss": 0.25}, "round": 0}
    events = [
        {"event": "job", "name": "train", "workers": {"low": 2, "high": 2}},
        {"event": "round", "number": 0, "state": "running"},
        {"event": "worker_started", "task": "worker:0", "pid": 1, "round": 0},
        {"event": "worker_started", "task": "worker:1", "pid": 2, "round": 0},
        *[
            {"event": "worker_report", "task": "worker:0", "report": report}
            for report in (
                {"kind": "first_step", "step": 1},
                {"kind": "fit_begin", "epochs": 2, "steps": 60},
                {"kind": "training", "global_batch": 64, "workers": 2},
            )
        ],
        {"event": "progress", **step, **more},
        {"event": "worker_exited", "task": "worker:1", "code": -9, "status": "killed by SIGKILL"},
    ]
    return reduce([{**e, "time": began} for e in events], "run").to_json(began, live=True)

terminal = Terminal(prefix_all=False, chief="worker:0")
terminal.show_live(view)
for number in range(40):
    terminal.output("worker:0", "stdout", f"line {number} of the user's\\n")
for percent in range(100):
    terminal.output("worker:0", "stdout", f"\\r{percent} %|====")
terminal.output("worker:0", "stdout", "\\r100 %|====\\nno end of line")
terminal.notice("a notice")
time.sleep(1.2)  # two looks
terminal.output("worker:0", "stderr", "[bold]no markup[/bold]\\n")
terminal.close()
print("the summary", file=sys.stderr)
"""


def shown_by(code: str, **environment: str) -> str:
    """What a terminal of 24 lines and 100 columns is sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    sent, deadline = b"", time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            try:
                if not (piece := os.read(ours, 65536)):
                    break
            except OSError:  # the other end is closed
                break
            sent += piece
    finally:
        process.kill()
        process.wait(timeout=30)
        os.close(ours)
    return sent.decode()


def test_the_users_lines_scroll_above_a_block_that_goes_away() -> None:
    sent = shown_by(SHOWS)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    for number in range(40):
        assert plain.count(f"line {number} of the user's") == 1
    assert plain.count("100 %|====") == 1
    assert "57 %|====" not in plain  # a bar that was redrawn is one line
    assert plain.count("no end of line") == 1
    assert "tfrun: a notice" in plain
    assert "[bold]no markup[/bold]" in plain
    assert "train · training · round 0 · 1 of 2 workers up" in plain
    assert re.search(r"epoch 1/2 step 30/60 +━+.* 25 %, 0:09 left", plain)
    assert "640 samples/s" in plain
    assert "a step 100 ms: input 10 %, compute 60 %, communication 20 %, other 10 %" in plain
    assert "worker 1: killed by SIGKILL" in plain
    # What comes last is the summary; the block was erased before it.
    assert plain.rstrip().endswith("the summary")
    assert "\x1b[2K" in sent.rpartition("train")[2]
    assert sent.count("\x1b[?25h") >= sent.count("\x1b[?25l")  # the cursor is not left hidden


def test_where_there_is_no_block() -> None:
    code = "from tfrun.observe.live_block import is_possible; print('possible', is_possible())"
    assert "possible True" in shown_by(code)
    assert "possible False" in shown_by(code, TERM="dumb")
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert piped.stdout == "possible False\n"
