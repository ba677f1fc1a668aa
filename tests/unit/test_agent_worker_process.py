"""The agent's side of a worker, with real processes that behave and that do not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tfrun.agent.worker_process import WorkerProcess
from tfrun.job.exits import ExitStatus
from tfrun.job.reports import Report

SECONDS = 5
HEAD = """
import os, signal, socket, sys, time
from tfrun.process import channel
from tfrun.job.reports import Done, EpochEnd, Error, Resumed
line = socket.socket(fileno=os.dup(int(sys.argv[1])))
channel.open_channel(int(sys.argv[1]))
"""


class PlainSpawner:
    """Starts `python -c` as a worker: no TensorFlow, the same streams and line."""

    def __init__(self, code: str) -> None:
        self.on_exit: Callable[[int, int], None] = lambda pid, status: None
        self.on_death: Callable[[str], None] = lambda how: None
        self.pid: int | None = None
        self.code = code

    async def prepare(self) -> float:
        return 0.0

    async def spawn(self, task: Mapping[str, Any], fds: tuple[int, int, int]) -> int:
        stdout, stderr, line = fds
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HEAD + self.code, str(line)),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(line,),
            start_new_session=True,
        )

        async def wait() -> None:
            code = await process.wait()
            self.on_exit(process.pid, -code if code < 0 else code << 8)

        self._waiting = asyncio.create_task(wait())
        return process.pid

    async def close(self) -> None:
        self._waiting.cancel()


class Heard:
    """What the agent would send on."""

    def __init__(self) -> None:
        self.output: list[tuple[str, str]] = []
        self.reports: list[Report] = []
        self.notices: list[str] = []
        self.exit: tuple[ExitStatus, bool, str] | None = None
        self.news = asyncio.Event()

    def on_output(self, task: str, stream: str, text: str) -> None:
        self.output.append((stream, text))
        self.news.set()

    def on_report(self, task: str, report: Report) -> None:
        self.reports.append(report)
        self.news.set()

    def on_exit(self, worker: WorkerProcess, when: float, status: ExitStatus) -> None:
        self.exit = (status, worker.was_told_to(status), worker.tail)
        self.news.set()

    def on_notice(self, text: str) -> None:
        self.notices.append(text)
        self.news.set()

    def text(self, stream: str) -> str:
        return "".join(text for of, text in self.output if of == stream)

    @property
    def kinds(self) -> list[str]:
        return [report.kind for report in self.reports]


Act = Callable[[WorkerProcess, Heard], bool]


def live(
    directory: Path,
    code: str,
    act: Act = lambda worker, heard: True,
    *,
    terminal: tuple[int, int] | None = None,
    muted: bool = False,
    title: str = "",
) -> Heard:
    """Runs a worker to its end; `act` is asked after each news until it returns True."""

    async def run() -> Heard:
        heard = Heard()
        worker = WorkerProcess("worker:0", directory / "worker-0.log", heard, title=title)
        spawner = PlainSpawner(code)
        ending: list[asyncio.Task[None]] = []

        def on_exit(pid: int, status: int) -> None:
            ended = worker.ended(ExitStatus.from_wait_status(status))
            ending.append(asyncio.get_running_loop().create_task(ended))

        spawner.on_exit = on_exit
        await worker.start(spawner, {"runs": "script"}, show=True, muted=muted, terminal=terminal)
        try:
            acted = False
            while heard.exit is None:
                await asyncio.wait_for(heard.news.wait(), SECONDS)
                heard.news.clear()
                acted = acted or act(worker, heard)
        finally:
            worker.signal(9)
            await asyncio.wait_for(worker.exited.wait(), SECONDS)
            await asyncio.gather(*ending)
        return heard

    return asyncio.run(run())


def release_when_done(worker: WorkerProcess, heard: Heard) -> bool:
    if "done" not in heard.kinds:
        return False
    worker.say("release")
    return True


DONE = "channel.emit(Done(collectives=None)); channel.wait_for('release'); os._exit(0)\n"


def test_a_good_life(tmp_path: Path) -> None:
    code = "print('out'); print('err', file=sys.stderr)\nsys.stdout.flush()\n"
    heard = live(tmp_path, code + "channel.emit(EpochEnd(epoch=0))\n" + DONE, release_when_done)
    assert heard.exit == (ExitStatus(code=0), False, "err\n")
    assert heard.kinds == ["epoch_end", "done"]
    assert (heard.text("stdout"), heard.text("stderr")) == ("out\n", "err\n")
    assert sorted((tmp_path / "worker-0.log").read_text().splitlines()) == ["err", "out"]
    assert heard.notices == []


@pytest.mark.parametrize("signum", [9, 15])
def test_an_end_that_we_asked_for_is_known_as_such(tmp_path: Path, signum: int) -> None:
    def stop(worker: WorkerProcess, heard: Heard) -> bool:
        worker.signal(signum)
        return True

    heard = live(tmp_path, "print('ready', flush=True); signal.pause()", stop)
    assert heard.exit == (ExitStatus(code=-signum), True, "")


@pytest.mark.parametrize("signum", [9, 15, 11])
def test_another_end_is_the_workers_own(tmp_path: Path, signum: int) -> None:
    heard = live(tmp_path, f"os.kill(os.getpid(), {signum})")
    assert heard.exit == (ExitStatus(code=-signum), False, "")


def test_children_end_with_their_worker_and_do_not_hold_its_end_up(tmp_path: Path) -> None:
    code = """
import subprocess
near = subprocess.Popen(["sleep", "1000"])
far = subprocess.Popen(["sleep", "5"], start_new_session=True)
print(near.pid, far.pid, flush=True)
os._exit(3)
"""
    heard = live(tmp_path, code)
    assert heard.exit is not None and heard.exit[0] == ExitStatus(code=3)
    near, far = map(int, heard.text("stdout").split())
    assert Path(f"/proc/{far}").exists()
    status = Path(f"/proc/{near}/status")
    assert not status.exists() or "zombie" in status.read_text()
    subprocess.run(["kill", "-9", str(far)], check=True)


def test_a_terminal_has_its_size_and_leaves_line_ends_alone(tmp_path: Path) -> None:
    code = "print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1), flush=True)"
    heard = live(tmp_path, code, terminal=(33, 77))
    assert heard.text("stdout") == "True False os.terminal_size(columns=77, lines=33)\n"


def test_what_a_peers_end_makes_it_print_is_in_the_log_only(tmp_path: Path) -> None:
    code = """
channel.emit(Error(type="UnavailableError"))
channel.wait_for("go", 10)
print("consequence", file=sys.stderr)
os._exit(1)
"""
    heard = live(tmp_path, code)
    assert (heard.kinds, heard.text("stderr")) == (["error"], "")
    assert "consequence" in (tmp_path / "worker-0.log").read_text()


ODD_LINES = """
odd_ones = b"hello", b"\\xff\\xfe", b"", b"[1]", b"1", b'{"kind": [1]}'
for odd in (*odd_ones, b"[" * 100_000, b"x" * 3_000_000):
    line.sendall(odd + b"\\n")
"""


def test_odd_lines_do_not_hide_the_end(tmp_path: Path) -> None:
    """The descriptor belongs to the user's process, which may write anything to it.

    A "done" that is not heard is not released, and the job would never end.
    """
    heard = live(tmp_path, ODD_LINES + DONE, release_when_done)
    assert heard.kinds[-1] == "done"
    assert heard.exit is not None and heard.exit[0] == ExitStatus(code=0)


def test_what_a_muted_worker_prints_on_its_way_back_is_in_the_log_only(tmp_path: Path) -> None:
    code = """
print("old", flush=True); print("old error", file=sys.stderr, flush=True)
channel.emit(Resumed(key=[0, 0, 3], step=3))
channel.wait_for("go", 10)
print("new", flush=True); print("new error", file=sys.stderr, flush=True)
os._exit(0)
"""
    heard = live(tmp_path, code, muted=True)
    assert (heard.text("stdout"), heard.text("stderr")) == ("new\n", "new error\n")
    log = (tmp_path / "worker-0.log").read_text()
    assert sorted(log.splitlines()) == ["new", "new error", "old", "old error"]


def test_a_muted_worker_that_never_gets_there_has_its_tail(tmp_path: Path) -> None:
    heard = live(tmp_path, "print('why', file=sys.stderr); os._exit(3)", muted=True)
    assert heard.exit == (ExitStatus(code=3), False, "why\n")
    assert heard.output == []


def test_the_log_goes_on_in_the_next_round(tmp_path: Path) -> None:
    live(tmp_path, "print('first', end='', flush=True); os._exit(0)")
    live(tmp_path, "print('second', flush=True); os._exit(0)", title="--- round 1 ---")
    assert (tmp_path / "worker-0.log").read_text() == "first\n--- round 1 ---\nsecond\n"
