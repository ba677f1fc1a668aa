"""SIGTERM to a worker's process: it is reported, whatever the main thread does, and that is all."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

HEAD = """
import os, signal, subprocess, sys, time
from tfrun.process import channel; from tfrun.process import sigterm
from tfrun.job.reports import Kept
channel.open_channel(int(sys.argv[1]))
sigterm.listen()

def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
"""
WANTED = [{"kind": "wanted_back"}]


def reports(code: str, *, shielded: bool = False) -> list[dict]:
    """What the code reports; it has to end well."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    with ours, theirs:
        process = subprocess.Popen(
            # Python 3.12 warns of a fork beside a thread.
            [
                sys.executable,
                "-W",
                "ignore::DeprecationWarning",
                "-c",
                HEAD + code,
                str(theirs.fileno()),
            ],
            pass_fds=(theirs.fileno(),),
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_send_early if shielded else None,
        )
        theirs.close()
        data = b""
        while piece := ours.recv(1 << 16):
            data += piece
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    return [json.loads(line) for line in data.splitlines()]


def _send_early() -> None:
    """As if it came while the process is still starting."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)


def test_it_is_reported_and_the_script_goes_on() -> None:
    found = reports("terminate()\ntime.sleep(0.5)")
    assert found in (WANTED, WANTED * 2)  # by the thread, and perhaps by the handler too


def test_it_is_reported_while_the_main_thread_is_in_a_c_call() -> None:
    # A lock that nobody releases: no Python of the main thread runs, nor any signal's handler.
    code = (
        "import ctypes\n"
        "from threading import Timer\n"
        "Timer(0.1, terminate).start()\n"
        "Timer(0.5, lambda: (channel.emit(Kept()), os._exit(0))).start()\n"
        "libc, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)\n"
        "for _ in range(2):\n    libc.pthread_mutex_lock(lock)\n"
    )
    assert reports(code) == [*WANTED, {"kind": "kept"}]


def test_one_that_came_before_the_worker_was_ready_is_reported() -> None:
    assert WANTED[0] in reports("time.sleep(0.2)", shielded=True)


def test_a_script_with_a_handler_of_its_own_gets_it_alone() -> None:
    code = (
        "signal.signal(signal.SIGTERM, lambda *_: channel.emit(Kept()))\n"
        "terminate()\ntime.sleep(0.2)"
    )
    assert reports(code) == [{"kind": "kept"}]


def test_a_handler_that_calls_the_one_before_has_it_reported_too() -> None:
    code = (
        "before = signal.signal(signal.SIGTERM, lambda *a: before(*a))\n"
        "terminate()\ntime.sleep(0.2)"
    )
    assert reports(code) == WANTED


@pytest.mark.parametrize(
    "child",
    [
        "os.fork() or time.sleep(60)",
        "subprocess.Popen(['sleep', '60']).pid",
    ],
)
def test_children_of_the_script_die_of_it_as_always(child: str) -> None:
    code = (
        f"pid = {child}\ntime.sleep(0.2)\nos.kill(pid, signal.SIGTERM)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -15\n"
    )
    assert reports(code) == []


def test_a_child_that_gets_it_at_once_does_not_write_to_its_parents_pipe() -> None:
    """As those of a `multiprocessing.Pool` that is dropped early."""
    code = (
        "for _ in range(150):\n"
        "    pid = os.fork() or time.sleep(60)\n"
        "    os.kill(pid, signal.SIGTERM)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -15\n"
        "time.sleep(0.2)\n"
    )
    assert reports(code) == []
