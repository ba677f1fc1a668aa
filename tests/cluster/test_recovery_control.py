"""Rounds that follow a failure, with real processes: scripts that die and are run again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from conftest import Jobs, marked, wait_until
from tfrun.observe.monitor import view_of

HEAD = """
import fcntl, os, signal, sys, time
import psutil
from tfrun.job.reports import FirstStep, Resumed, SnapshotTaken
from tfrun.process import channel
rank, round = int(os.environ["RANK"]), int(os.environ["TFRUN_ROUND"])

class UnavailableError(Exception):
    pass

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def about_to_end():
    \"\"\"Waits until all are as far; the others notice when this process is no more.\"\"\"
    global held
    os.makedirs("ready", exist_ok=True)
    held = open(os.path.join("ready", f"held{round}"), "w")
    fcntl.flock(held, fcntl.LOCK_SH)
    meet()

def notice_end():
    \"\"\"What TensorFlow does when a peer has gone; stands in for a collective.\"\"\"
    meet()
    with open(os.path.join("ready", f"held{round}")) as file:
        wait_until(lambda: is_free(file))
    raise UnavailableError("a peer has gone")

def is_free(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

def about_to_stop():
    \"\"\"As `about_to_end`, for one that stops and goes on being there.\"\"\"
    os.makedirs("ready", exist_ok=True)
    with open(os.path.join("ready", f"pid{round}"), "w") as file:
        file.write(str(os.getpid()))
    meet()

def notice_stop():
    \"\"\"As `notice_end`, for one that was `about_to_stop`.\"\"\"
    meet()
    with open(os.path.join("ready", f"pid{round}")) as file:
        peer = psutil.Process(int(file.read()))
    wait_until(lambda: peer.status() == psutil.STATUS_STOPPED)
    raise UnavailableError("a peer does not answer")

def meet():
    os.makedirs("ready", exist_ok=True)
    open(os.path.join("ready", f"{round}-{rank}"), "w").close()
    peers = range(int(os.environ["WORLD_SIZE"]))
    wanted = [os.path.join("ready", f"{round}-{peer}") for peer in peers]
    wait_until(lambda: all(map(os.path.exists, wanted)))

def wait_until(is_so):
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)
"""


def events(jobs: Jobs, kind: str = "") -> list[dict[str, Any]]:
    text = (jobs.directory / "run" / "events.jsonl").read_text()
    every = [json.loads(line) for line in text.splitlines()]
    return [event for event in every if not kind or event["event"] == kind]


def log(jobs: Jobs, rank: int) -> str:
    return (jobs.directory / "run" / "logs" / f"worker-{rank}.log").read_text()


def run(jobs: Jobs, script: str, *options: object, workers: int = 2, **more):
    jobs.script(HEAD + script)
    return jobs.run("-n", workers, *options, "--run-dir", "run", "train.py", **more)


@pytest.fixture(autouse=True)
def no_state_is_left(jobs: Jobs):
    """A script that writes its state directory's path to `state…` has it looked after."""
    yield
    for file in jobs.directory.glob("state*"):
        assert not Path(file.read_text()).exists()


def test_a_killed_worker_is_replaced_and_the_job_goes_on(jobs: Jobs) -> None:
    result = run(
        jobs,
        "print('in round', round, flush=True)\n"
        "open(f'state{rank}', 'w').write(os.environ['TFRUN_STATE_DIR'])\n"
        "assert oct(os.stat(os.environ['TFRUN_STATE_DIR']).st_mode)[-3:] == '700'\n"
        "if round == 0 and rank == 1:\n    about_to_end()\n    die()\n"
        "if round == 0:\n    notice_end()\n",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "in round 0\nin round 1\n"
    assert "tfrun: worker 1 killed by SIGKILL; restarted from the beginning" in result.stderr
    assert "with 2 workers after" in result.stderr
    assert "· 1 restart ·" in result.stderr.replace("\n", " · ")
    assert "Unavailable" not in result.stderr
    assert "Traceback" not in result.stderr
    for rank in range(2):
        assert "\n--- round 1 ---\nin round 1\n" in log(jobs, rank)
    assert len({file.read_text() for file in jobs.directory.glob("state*")}) == 1
    (failure,) = events(jobs, "failure")
    assert (failure["task"], failure["cause"]) == ("worker:1", "infrastructure")
    (recovered,) = events(jobs, "recovered")
    assert (recovered["round"], recovered["restarts"]) == (1, 1)


def test_from_the_kill_to_the_forks_takes_no_time(jobs: Jobs) -> None:
    result = run(
        jobs,
        "if round < 3 and rank == 1:\n    about_to_end()\n    die()\n"
        "if round < 3:\n"
        "    channel.emit(FirstStep(step=round + 1))\n    notice_end()\n",
    )
    assert result.returncode == 0, result.stderr
    ended = [e["time"] for e in events(jobs, "worker_exited") if e["code"] == -9]
    started = {}
    for event in events(jobs, "worker_started"):
        started[event["round"]] = event["time"]  # the last one of each round
    assert len(ended) == 3
    taken = [started[number + 1] - died for number, died in enumerate(ended)]
    assert sorted(taken)[1] < 1, taken  # typically 0.1; a process that is no fork takes 2 to 3


def test_a_snapshot_is_resumed_and_what_was_shown_is_not_shown_again(jobs: Jobs) -> None:
    result = run(
        jobs,
        "print('loading', flush=True)\n"
        "if round == 0:\n"
        "    if rank == 1:\n        about_to_end()\n        die()\n"
        "    channel.emit(SnapshotTaken(key=[0, 1, 3], step=1203, seconds=0.1))\n"
        "    notice_end()\n"
        "print('building', flush=True)\n"
        "channel.emit(Resumed(key=[0, 1, 3], step=1203))\n"
        "channel.wait_for('go', 10)\n"
        "print('new', flush=True)\n"
        "channel.emit(FirstStep(step=1204))\n",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "loading\nnew\n"
    assert "\n--- round 1 ---\nloading\nbuilding\nnew\n" in log(jobs, 0)
    line = "worker 1 killed by SIGKILL at step 1,203; resumed at step 1,203 with 2 workers after"
    assert line in result.stderr
    assert "from the beginning" not in result.stderr
    (recovered,) = events(jobs, "recovered")
    assert (recovered["step"], recovered["lost_steps"]) == (1203, 0)
    assert recovered["seconds"] > 0


def test_a_crash_loop_ends_with_the_code_of_the_failure(jobs: Jobs) -> None:
    result = run(
        jobs,
        "print('round', round, flush=True)\n"
        "if rank == 1:\n    about_to_end()\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
        "notice_end()\n",
        "--max-restarts",
        2,
    )
    assert result.returncode == 139
    assert "TFRUN-405: worker 1 failed first: killed by SIGSEGV" in result.stderr
    assert "restarted 2 times" in result.stderr
    assert "run/logs/worker-1.log" in result.stderr
    assert result.stdout == "round 0\nround 1\nround 2\n"
    assert len(events(jobs, "failure")) == 3


def test_progress_allows_more_restarts(jobs: Jobs) -> None:
    result = run(
        jobs,
        "channel.emit(FirstStep(step=round + 1))\n"
        "if round < 4 and rank == 1:\n    about_to_end()\n    die()\n"
        "if round < 4:\n    notice_end()\n",
        "--max-restarts",
        1,
    )
    assert result.returncode == 0, result.stderr
    assert "4 restarts" in result.stderr


@pytest.mark.parametrize(
    ("end", "code", "named"),
    [
        ("raise ValueError('boom')", 1, "ValueError: boom"),
        ("sys.exit(7)", 7, "exit code 7"),
        ("os._exit(9)", 9, "exit code 9"),
    ],
)
def test_the_scripts_own_failure_is_not_tried_again(
    jobs: Jobs, end: str, code: int, named: str
) -> None:
    result = run(
        jobs,
        f"print('once', flush=True)\nif rank == 1:\n    about_to_end()\n    {end}\nnotice_end()\n",
    )
    assert result.returncode == code
    assert named in result.stderr
    assert "TFRUN-401: worker 1 failed first" in result.stderr
    assert result.stdout == "once\n"
    assert [event["number"] for event in events(jobs, "round")][-1] == 0


def test_one_that_has_finished_runs_again_with_the_others(jobs: Jobs) -> None:
    result = run(
        jobs,
        "print('in round', round, flush=True)\n"
        "if rank == 1 and round == 0:\n"
        "    deadline = time.monotonic() + 20\n"
        "    while '\"kind\": \"done\"' not in open('run/events.jsonl').read():\n"
        "        assert time.monotonic() < deadline\n        time.sleep(0.01)\n"
        "    die()\n",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "in round 0\nin round 1\n"


def test_two_at_once_and_again_while_starting(jobs: Jobs) -> None:
    result = run(
        jobs,
        "if round == 0 and rank:\n    about_to_end()\n    die()\n"
        "if round == 0:\n    notice_end()\n"
        "if round == 1:\n    die()\n"
        "print('end', flush=True)\n",
        workers=3,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "end\n"
    assert "2 restarts" in result.stderr


def test_one_that_is_stopped_is_replaced(jobs: Jobs) -> None:
    """Nobody's process ends: its peers' errors alone say that one of them is not there."""
    begin = time.time()
    result = run(
        jobs,
        "if round == 0 and rank == 1:\n"
        "    about_to_stop()\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "if round == 0:\n"
        "    channel.emit(SnapshotTaken(key=[0, 0, 5], step=5, seconds=0.1))\n    notice_stop()\n"
        "channel.emit(Resumed(key=[0, 0, 5], step=5))\n"
        "channel.emit(FirstStep(step=6))\n",
    )
    assert result.returncode == 0, result.stderr
    assert "worker 1 stopped answering and was killed at step 5; resumed" in result.stderr
    # So long a machine that others use as well takes for a start: a multiple of that is as slow.
    start = events(jobs, "worker_started")[0]["time"] - begin
    assert time.time() - begin - start < 15 * max(1, start / 2), start


def test_children_of_the_old_round_do_not_live_on(jobs: Jobs) -> None:
    result = run(
        jobs,
        "import psutil, subprocess\n"
        "if round == 0:\n"
        "    far = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "    open(f'pid{rank}', 'w').write(str(far.pid))\n"
        "    if rank == 1:\n        about_to_end()\n        die()\n"
        "    notice_end()\n"
        "far = int(open(f'pid{rank}').read())\n"
        "assert not psutil.pid_exists(far) or psutil.Process(far).status() == 'zombie'\n",
    )
    assert result.returncode == 0, result.stderr


def in_round_one(jobs: Jobs) -> list[int]:
    """Starts nothing; waits until two workers hang in round 1 and returns their pids."""

    def hanging() -> bool:
        logs = jobs.directory / "run" / "logs"
        return all(
            (logs / f"worker-{rank}.log").exists() and "hanging" in log(jobs, rank)
            for rank in range(2)
        )

    wait_until(hanging, "both workers are in round 1")
    return [e["pid"] for e in events(jobs, "worker_started") if e["round"] == 1]


LATER = (
    HEAD + "open(f'state{rank}', 'w').write(os.environ['TFRUN_STATE_DIR'])\n"
    "open(os.path.join(os.environ['TFRUN_STATE_DIR'], f'part{rank}'), 'w').write('x' * 1000)\n"
    "if round == 0 and rank == 1:\n    about_to_end()\n    die()\n"
    "if round == 0:\n    notice_end()\n"
    "if round == 1:\n    print('hanging', flush=True)\n    signal.pause()\n"
)


@pytest.mark.parametrize("victim", ["launcher", "agent"])
def test_kill_9_in_a_later_round_leaves_nothing_behind(jobs: Jobs, victim: str) -> None:
    jobs.script(LATER)
    process = jobs.start("-n", 2, "--run-dir", "run", "train.py")
    zygote = psutil.Process(in_round_one(jobs)[0]).parent()
    assert zygote is not None
    agent = zygote.parent()
    assert agent is not None
    (process if victim == "launcher" else agent).kill()
    process.communicate(timeout=20)
    wait_until(lambda: not marked(jobs.environment["TFRUN_TEST_MARK"]), "nothing is left", 5)
    state = Path((jobs.directory / "state0").read_text())
    assert state.name.startswith("tfrun-")
    wait_until(lambda: not state.exists(), "the snapshots are removed", 5)


def test_a_dead_zygote_is_replaced(jobs: Jobs) -> None:
    jobs.script(LATER)
    process = jobs.start("-n", 2, "--run-dir", "run", "train.py")
    zygote = psutil.Process(in_round_one(jobs)[0]).parent()
    assert zygote is not None
    zygote.kill()
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert "zygote" in stderr
    assert "2 restarts" in stderr


def test_ctrl_c_in_a_later_round(jobs: Jobs) -> None:
    jobs.script(LATER)
    process = jobs.start("-n", 2, "--run-dir", "run", "train.py")
    in_round_one(jobs)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "stopped by SIGINT" in stderr


def test_a_state_directory_that_is_given_is_kept(jobs: Jobs) -> None:
    state = jobs.directory / "mine"
    state.mkdir()
    result = run(
        jobs,
        "open(os.path.join(os.environ['TFRUN_STATE_DIR'], f'part{rank}'), 'w').close()\n",
        env={"TFRUN_STATE_DIR": str(state)},
    )
    assert result.returncode == 0, result.stderr
    assert {"part0", "part1"} <= {path.name for path in state.iterdir()}


LOSES_B = """import psutil
print('in round', round, 'of', os.environ['WORLD_SIZE'], flush=True)
if round == 0 and rank == 1:
    agent = psutil.Process().parent().parent()
    assert 'tfrun.agent.' in ' '.join(agent.cmdline())
    about_to_end()
    agent.kill()
    signal.pause()
if round == 0:
    notice_end()
"""


def on_two_machines(
    jobs: Jobs, workers: str, script: str = LOSES_B, **env: str
) -> subprocess.CompletedProcess[str]:
    """Each of two agents has a worker; in round 0 the second agent is killed, and all it has."""
    jobs.script(HEAD + script)
    return subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("scripts") / "two_agents.py",
            workers,
            "train.py",
        ],
        cwd=jobs.directory,
        env={**jobs.environment, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_lost_machine_is_done_without_where_the_range_allows_it(jobs: Jobs) -> None:
    result = on_two_machines(jobs, "1:2")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "in round 0 of 2\nin round 1 of 1\n"
    assert "the agent b was lost" in result.stderr
    assert "restarted from the beginning with 1 worker after" in result.stderr


def test_a_lost_machine_ends_a_job_that_needs_it(jobs: Jobs) -> None:
    result = on_two_machines(jobs, "2")
    assert result.returncode == 1
    assert "TFRUN-301" in result.stderr
    assert "the agent b was lost" in result.stderr
    assert result.stdout == "in round 0 of 2\n"


def test_a_machine_with_other_versions_is_named_and_a_failure_may_be_for_that(jobs: Jobs) -> None:
    other = jobs.directory / "other" / "keras-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 9.9.9\n")
    script = "if rank == 1:\n    about_to_end()\n    raise AttributeError('Dense')\nnotice_end()\n"
    result = on_two_machines(jobs, "2", script, OTHER_PATH=str(other.parent))
    assert result.returncode == 1
    assert re.search(r"^tfrun: (a|b) has Keras .*: workers may fail, or", result.stderr, re.M)
    assert "Likely cause: perhaps different versions of packages" in result.stderr
    newer, told = sorted(events(jobs, "notice"), key=lambda event: "workers may" in event["text"])
    assert newer["text"].startswith("TFRUN-111: Keras 9.9.9 is newer than those tfrun was tested")
    failure = view_of(jobs.directory / "run").to_json(time.time())["failure"]  # as the page has it
    assert failure["headline"] == "worker 1 failed first: exit code 1, AttributeError"
    (different,) = re.findall(r"packages: ((?:a|b) has Keras [^;]*)", failure["likely"])
    assert told["text"].startswith(different) and "9.9.9" in different
    assert "tfrun doctor" in failure["fix"]
