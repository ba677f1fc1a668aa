"""The zygote: a process that has imported TensorFlow and Keras, has run no op, and forks workers.

`python -m tfrun.worker.zygote FD PARENT_PID [SCRIPT]`: FD is a Unix stream socket to the agent,
SCRIPT the file that the workers will run.

    agent → zygote   four bytes of length, carrying the file descriptors stdout, stderr and
                     channel; then {"id", "task"} as JSON: fork
    zygote → agent   JSON lines: {"ready": seconds} | {"failed": {...}}, then {"id", "pid"} for
                     each fork and {"pid", "status"} for each end

It is single-threaded where it matters: only its main thread runs Python, and forks.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import warnings
from typing import Any, NoReturn

from tfrun.job.reports import encode
from tfrun.process import channel, lineage


def main() -> None:
    agent = socket.socket(fileno=int(sys.argv[1]))
    lineage.die_with_parent(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The workers take SIGTERM. Here it is blocked, and in each fork until that is ready for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    started = time.monotonic()
    try:
        from tfrun.worker.preload import preload

        preload(*sys.argv[3:])
    except BaseException as error:
        from tfrun.worker.script import describe

        _send(agent, {"failed": encode(describe(error))})
        raise
    _send(agent, {"ready": round(time.monotonic() - started, 3)})
    _serve(agent)


def _serve(agent: socket.socket) -> None:
    """Forks on request and reports ends until the agent closes its side."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    with selectors.DefaultSelector() as selector:
        selector.register(agent, selectors.EVENT_READ)
        selector.register(wake_read, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == wake_read:
                    os.read(wake_read, 4096)
                    _report_ends(agent)
                else:
                    request, fds = _receive(agent)
                    if request is None:
                        return
                    pid = _fork(request["task"], fds, (agent.fileno(), wake_read, wake_write))
                    _send(agent, {"id": request["id"], "pid": pid})


def _receive(agent: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Reads one request and its file descriptors; None when the agent has closed its side."""
    header, fds, _, _ = socket.recv_fds(agent, 4, 3)
    if not header:
        return None, []
    length = int.from_bytes(header, "big")
    data = bytearray()
    while len(data) < length:
        data += agent.recv(length - len(data)) or sys.exit("the agent closed within a request")
    return json.loads(data), fds


def _fork(task: dict[str, Any], fds: list[int], ours: tuple[int, ...]) -> int:
    zygote = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # TensorFlow has a second thread, which Python >= 3.12 warns about. It holds no lock
        # that a child needs (80 of 80 starts worked, and each test here starts more).
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _become_worker(task, fds, ours, zygote)
    for fd in fds:
        os.close(fd)
    return pid


def _become_worker(
    task: dict[str, Any], fds: list[int], ours: tuple[int, ...], zygote: int
) -> NoReturn:
    """In the child: takes its own streams, session and signals, then lives the task."""
    try:
        os.setsid()  # its process group holds whatever the script starts, and ends with it
        lineage.die_with_parent(zygote)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for fd in ours:
            os.close(fd)
        stdin = os.open(os.devnull, os.O_RDONLY)
        os.dup2(stdin, 0)
        os.close(stdin)
        stdout, stderr, line = fds
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        channel.open_channel(line)
        from tfrun.worker.bootstrap import live

        live(task)
    finally:
        os._exit(1)  # nothing may ever return into the zygote's loop


def _report_ends(agent: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _send(agent, {"pid": pid, "status": status})


def _send(agent: socket.socket, message: dict[str, Any]) -> None:
    agent.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
