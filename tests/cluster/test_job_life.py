"""A job's life and ends: exit codes, signals, Ctrl-C, kill -9, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from conftest import Jobs, marked, wait_until

# A peer that hangs as TensorFlow does: deaf to SIGTERM.
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
HANG = "import signal\nprint('hanging', flush=True)\nwhile True: signal.pause()\n"
END_SECONDS = 6  # it is over in three; here another test may keep both cores busy
BY_RANK = "import os\nrank = int(os.environ['RANK'])\n"


def mark_of(jobs: Jobs) -> str:
    return jobs.environment["TFRUN_TEST_MARK"]


def started(jobs: Jobs, count: int):
    """Returns the pids of the workers once `count` of them hang."""
    logs = jobs.directory / "run" / "logs"

    def ready() -> bool:
        files = list(logs.glob("worker-*.log")) if logs.exists() else []
        return sum("hanging" in file.read_text() for file in files) == count

    wait_until(ready, f"{count} workers hang")
    events = (jobs.directory / "run" / "events.jsonl").read_text().splitlines()
    return [e["pid"] for e in map(json.loads, events) if e["event"] == "worker_started"]


def test_success_ends_with_zero(jobs: Jobs) -> None:
    jobs.script("print('done')")
    result = jobs.run("-n", 2, "train.py")
    assert (result.returncode, result.stdout) == (0, "done\n")


@pytest.mark.parametrize(
    ("end", "code", "named"),
    [
        ("sys.exit(7)", 7, "exit code 7"),
        ("sys.exit('no data')", 1, "no data"),
        ("raise ValueError('boom')", 1, "ValueError: boom"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "SIGKILL"),
        ("os._exit(9)", 9, "exit code 9"),
    ],
)
def test_the_first_failure_ends_the_others_and_gives_its_code(
    jobs: Jobs, end: str, code: int, named: str
) -> None:
    jobs.script(
        BY_RANK + DEAF + "import os, sys, time\n"
        f"if rank == 1:\n    print('failing', time.time(), flush=True)\n    {end}\n" + HANG
    )
    result = jobs.run("-n", 3, "--max-restarts", 0, "--run-dir", "run", "train.py")
    assert result.returncode == code
    report = result.stderr
    assert report.count("the job failed") == 1
    assert "worker 1 failed first" in report
    assert named in report
    assert "2 other tasks were stopped" in report
    assert "run/logs/worker-1.log" in report
    log = (jobs.directory / "run/logs/worker-1.log").read_text()
    failed = float(log.partition("failing ")[2].split()[0])
    exits = [
        event["time"]
        for event in map(json.loads, (jobs.directory / "run/events.jsonl").read_text().splitlines())
        if event["event"] == "worker_exited"
    ]
    assert len(exits) == 3
    assert max(exits) - failed < 2.0


def test_a_traceback_shows_the_script_and_not_the_launcher(jobs: Jobs) -> None:
    jobs.script(BY_RANK + "def f():\n    raise KeyError('missing')\nif rank == 1: f()\n" + HANG)
    result = jobs.run("-n", 2, "train.py")
    assert result.returncode == 1
    assert "in f" in result.stderr
    assert "KeyError: 'missing'" in result.stderr
    assert "bootstrap.py" not in result.stderr
    assert "script.py" not in result.stderr


def test_peers_errors_are_not_shown(jobs: Jobs) -> None:
    """When worker 1 dies the chief's collective fails too: a consequence, left to its log."""
    jobs.script(
        BY_RANK + "import os, tensorflow as tf\n"
        "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
        "@tf.function\n"
        "def total():\n"
        "    reduce = lambda: tf.distribute.get_replica_context().all_reduce('sum', 1.0)\n"
        "    return strategy.run(reduce)\n"
        "for step in range(10 ** 9):\n"
        "    total()\n"
        "    if rank == 1 and step == 20:\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    result = jobs.run("-n", 2, "--max-restarts", 0, "train.py")
    assert result.returncode == 137
    assert "worker 1 failed first: killed by SIGKILL" in result.stderr
    assert "Unavailable" not in result.stderr
    assert "Traceback" not in result.stderr


def test_ctrl_c_ends_all_within_seconds(jobs: Jobs) -> None:
    jobs.script("signal = __import__('signal'); signal.signal(2, signal.SIG_IGN)\n" + DEAF + HANG)
    process = jobs.start("-n", 2, "--run-dir", "run", "train.py")
    started(jobs, 2)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert time.monotonic() - begin < END_SECONDS
    assert process.returncode == 130
    assert "stopped by SIGINT" in stderr
    assert "Traceback" not in stderr
    assert not marked(mark_of(jobs))


def test_ctrl_c_lets_scripts_tidy_up(jobs: Jobs) -> None:
    jobs.script(
        "import pathlib, signal\n"
        "try:\n    print('hanging', flush=True)\n    while True: signal.pause()\n"
        "except KeyboardInterrupt:\n"
        "    pathlib.Path('tidied').write_text('yes')\n    raise\n"
    )
    process = jobs.start("--run-dir", "run", "train.py")
    started(jobs, 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    process.communicate()
    assert (jobs.directory / "tidied").read_text() == "yes"


def test_sigterm_ends_all(jobs: Jobs) -> None:
    jobs.script(HANG)
    process = jobs.start("-n", 2, "--run-dir", "run", "train.py")
    started(jobs, 2)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 75  # nothing had been trained, so all of it was saved


@pytest.mark.parametrize("delay", [0.05, 0.5, 2.0])
def test_ctrl_c_while_starting(jobs: Jobs, delay: float) -> None:
    jobs.script(HANG)
    process = jobs.start("-n", 2, "train.py")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=delay)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert time.monotonic() - begin < END_SECONDS
    # Before our first line has run, it is the interpreter that the signal ends.
    assert process.returncode in ((130, -signal.SIGINT) if delay < 0.5 else (130,)), stderr


def test_a_tensorflow_that_does_not_import_is_named(jobs: Jobs) -> None:
    jobs.script("raise ImportError('libcuda is broken')", "broken/tensorflow/__init__.py")
    jobs.script("print('never')")
    result = jobs.run("-n", 2, "train.py", env={"PYTHONPATH": str(jobs.directory / "broken")})
    assert result.returncode == 1
    assert "TFRUN-402" in result.stderr
    assert "libcuda is broken" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("victim", ["launcher", "agent", "zygote"])
def test_kill_9_leaves_nothing_behind(jobs: Jobs, victim: str) -> None:
    # Each worker has a child in its group and one that has gone into a session of its own.
    jobs.script(
        "import subprocess, sys\n"
        "for new in (False, True):\n"
        "    subprocess.Popen(['sleep', '600'], start_new_session=new)\n" + DEAF + HANG
    )
    process = jobs.start("-n", 2, "--max-restarts", 0, "--run-dir", "run", "train.py")
    workers = started(jobs, 2)
    zygote = psutil.Process(workers[0]).parent()
    assert zygote is not None
    agent = zygote.parent()
    assert agent is not None
    assert agent.ppid() == process.pid
    {"launcher": process, "agent": agent, "zygote": zygote}[victim].kill()
    _, stderr = process.communicate(timeout=20)
    if victim != "launcher":
        assert process.returncode == 1
        assert victim in stderr
        assert "SIGKILL" in stderr
    left = wait_until(
        lambda: not marked(mark_of(jobs)), f"nothing left of {len(workers)} workers", 5
    )
    assert left


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_launcher_that_ends_before_it_has_told_its_agent_anything(jobs: Jobs, signum) -> None:
    """The agent and its zygote start first, and the launcher is still importing what it needs."""
    jobs.script(HANG)
    process = jobs.start("-n", 2, "--run-dir", "run", "train.py")
    logs = jobs.directory / "run" / "logs"
    deadline = time.monotonic() + 20
    while not (logs / "local.zygote.log").exists():  # no pause: the moment is short
        assert time.monotonic() < deadline
    process.send_signal(signum)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == (130 if signum is signal.SIGINT else -signum), stderr
    assert wait_until(lambda: not marked(mark_of(jobs)), "nothing left", 5)
    assert not (jobs.directory / "run" / "events.jsonl").exists()  # it was as early as that
    assert (logs / "local.agent.log").read_text() == ""


def test_background_children_end_with_the_job(jobs: Jobs) -> None:
    jobs.script("import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)")
    begin = time.monotonic()
    assert jobs.run("train.py").returncode == 0
    assert time.monotonic() - begin < 60
    assert not marked(mark_of(jobs))


def test_exit_handlers_and_threads_run_to_their_end(jobs: Jobs) -> None:
    jobs.script(
        "import atexit, pathlib, threading, time\n"
        "atexit.register(lambda: pathlib.Path('atexit').write_text('ran'))\n"
        "event = threading.Event()\n"
        "def late():\n    event.wait(0.3)\n    pathlib.Path('thread').write_text('ran')\n"
        "threading.Thread(target=late).start()\n"
    )
    assert jobs.run("train.py").returncode == 0
    assert (jobs.directory / "atexit").read_text() == "ran"
    assert (jobs.directory / "thread").read_text() == "ran"


def test_workers_leave_together(jobs: Jobs) -> None:
    """The first to finish keeps its server up for the others."""
    jobs.script(
        BY_RANK + "import pathlib, psutil, time\n"
        "pathlib.Path(f'pid{rank}').write_text(str(__import__('os').getpid()))\n"
        "if rank == 1:\n"
        "    peer = pathlib.Path('pid0')\n"
        "    deadline = time.monotonic() + 20\n"
        "    while not (peer.exists() and peer.read_text()):\n"
        "        assert time.monotonic() < deadline\n        time.sleep(0.01)\n"
        "    time.sleep(0.5)\n"
        "    assert psutil.Process(int(peer.read_text())).is_running()\n"
        "    pathlib.Path('seen').write_text('alive')\n"
    )
    assert jobs.run("-n", 2, "train.py").returncode == 0
    assert (jobs.directory / "seen").read_text() == "alive"


def test_two_failures_report_the_earlier_one(jobs: Jobs) -> None:
    jobs.script(
        BY_RANK + "import time\n"
        "if rank == 0:\n    raise RuntimeError('first')\n"
        "time.sleep(0.2)\nraise RuntimeError('second')"
    )
    result = jobs.run("-n", 2, "train.py")
    assert result.returncode == 1
    assert "worker 0 failed first" in result.stderr
    assert "second" not in result.stderr.partition("the job failed")[2]


@pytest.mark.skipif(not os.access("/sys/fs/cgroup/memory", os.W_OK), reason="needs root, cgroup v1")
def test_out_of_memory_is_named(jobs: Jobs) -> None:
    """A real kill by the kernel: worker 1 puts itself into a small memory cgroup."""
    group = Path("/sys/fs/cgroup/memory", mark_of(jobs))
    group.mkdir()
    jobs.script(
        BY_RANK + "import os, pathlib\n"
        "if rank == 1:\n"
        f"    group = pathlib.Path('{group}')\n"
        "    (group / 'memory.limit_in_bytes').write_text(str(64 << 20))\n"
        "    (group / 'cgroup.procs').write_text(str(os.getpid()))\n"
        "    memory = [bytearray(os.urandom(1 << 20)) for _ in range(1024)]\n" + HANG
    )
    try:
        result = jobs.run("-n", 2, "--max-restarts", 0, "train.py")
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the cgroup is empty")
        group.rmdir()
    assert result.returncode == 137
    assert "TFRUN-403" in result.stderr
    assert "memory ran out" in result.stderr
    assert "Likely cause: the machine, or the container, has no memory left." in result.stderr
    assert "Fix: Use fewer workers on the machine" in result.stderr
