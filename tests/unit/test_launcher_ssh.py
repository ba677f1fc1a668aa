"""Starting agents over SSH: the command, what ssh's end means, who is missing, which address."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys

import pytest

from tfrun.cluster.host_lists import parse_hosts
from tfrun.control.rounds.model import AgentJoined, AgentPrepared, Interrupt, PlannedTask, Round
from tfrun.control.rounds.state_machine import step
from tfrun.job.errors import CODES, UsageError
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.launcher.launcher import MAX_LINES, missing_lines
from tfrun.launcher.remote_agent import GREETING, own_address
from tfrun.launcher.ssh.backend import ssh_job
from tfrun.launcher.ssh.command import Remote, forwarded_port, ssh_command
from tfrun.launcher.ssh.failure import why_ssh_ended

REMOTE = Remote(python="/opt/py/bin/python", directory="/home/me")
DENIED = "me@n2: Permission denied (publickey,password)."
RESOLVE = "ssh: Could not resolve hostname n2: Name or service not known"


@pytest.mark.parametrize(
    ("code", "tail", "permanent", "error", "says"),
    [
        (255, [RESOLVE], False, "", "its name does not resolve (ssh: Could"),
        (255, ["ssh: connect to host n2 port 22: Connection refused"], False, "", "refused"),
        (255, ["ssh: connect to host n2 port 22: Connection timed out"], False, "", "no answer"),
        (255, ["ssh: connect to host n2 port 22: No route to host"], False, "", "no route"),
        (255, ["Connection timed out during banner exchange"], False, "", "no answer"),
        (255, ["Connection reset by 10.0.0.2 port 22"], False, "", "closed"),
        (255, ["Timeout, server n2 not responding."], False, "", "went silent"),
        (255, [], False, "", "ssh failed"),
        (255, [DENIED], True, "TFRUN-304", "permission denied"),
        (255, [DENIED, "Connection closed by 10.0.0.2 port 22"], True, "TFRUN-304", "permission"),
        (255, ["Host key verification failed."], True, "TFRUN-304", "host key"),
        (255, ["/root/.ssh/config: line 3: Bad configuration option: x"], True, "TFRUN-304", "bad"),
        (127, ["bash: line 1: /x/python: No such file or directory"], True, "TFRUN-305", "/x/py"),
        (126, ["bash: line 1: /x/python: Permission denied"], True, "TFRUN-305", "--remote-python"),
        (1, ["ModuleNotFoundError: No module named 'tfrun'"], True, "TFRUN-305", "not installed"),
        (1, ["ModuleNotFoundError: No module named 'tfrun.agent'"], True, "TFRUN-305", "another"),
        (1, ["ModuleNotFoundError: No module named 'aiohttp'"], True, "TFRUN-305", "aiohttp"),
        (3, ["a", "boom"], True, "TFRUN-301", "exit code 3: boom"),
        (-9, [], True, "TFRUN-301", "killed by signal 9"),
    ],
)
def test_why_ssh_ended(code: int, tail: list[str], permanent: bool, error: str, says: str) -> None:
    reason = why_ssh_ended(code, tail, "/x/python")
    assert reason.permanent is permanent
    assert says in reason.text and "\n" not in reason.text
    assert reason.code in CODES
    if permanent:
        assert reason.code == error


@pytest.mark.skipif(not shutil.which("ssh"), reason="the OpenSSH client is not installed")
def test_the_real_ssh_says_what_is_expected() -> None:
    command = ssh_command("no-such-host.invalid", "python", "127.0.0.1", 1)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 255
    reason = why_ssh_ended(done.returncode, done.stderr.splitlines())
    assert not reason.permanent and "does not resolve" in reason.text


def test_the_command_is_safe_to_quote() -> None:
    *options, dashes, destination, text = ssh_command("u@h", "/a b/py'thon", "127.0.0.1", 4711)
    assert (dashes, destination) == ("--", "u@h")
    assert options[-2:] == ["-R", "127.0.0.1:0:127.0.0.1:4711"]
    assert shlex.split(text)[:3] == ["exec", "/a b/py'thon", "-c"]
    assert not set(text.partition(" -c ")[2]) & set("!\\\n`$"), (
        "csh and fish read these differently"
    )


def test_the_remote_command_greets_and_leaves_when_nobody_is_there(tmp_path) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('a module of the user')")
    text = ssh_command("h", sys.executable, "127.0.0.1", 1)[-1]
    done = subprocess.run(
        ["sh", "-c", text],
        **{"input": "", "capture_output": True, "text": True, "timeout": 60, "check": False},
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(GREETING)


def test_the_forwarded_port() -> None:
    line = "Allocated port 41537 for remote forward to 127.0.0.1:4711"
    assert forwarded_port(line) == 41537
    assert forwarded_port(f"he said: {line}") is None
    assert forwarded_port("") is None


@pytest.mark.parametrize(
    ("arrived", "interfaces", "address"),
    [
        ("10.0.0.1 999 10.0.0.2 22", ["127.0.0.1", "192.168.0.2"], "10.0.0.2"),
        ("127.0.0.1 999 127.0.0.1 22", ["127.0.0.1", "::1", "10.0.0.2"], "10.0.0.2"),
        ("::1 999 ::1 22", ["fe80::1%eth0", "fd00::2"], "fd00::2"),
        ("fe80::1%eth0 9 fe80::2%eth0 22", ["00:11:22:33:44:55", "10.0.0.2"], "10.0.0.2"),
        ("", ["127.0.0.1"], ""),
    ],
)
def test_the_address_for_peers_is_never_loopback(
    arrived: str, interfaces: list[str], address: str
) -> None:
    assert own_address(arrived, interfaces) == address


def plan_of(hosts: str, workers: int):
    spec = JobSpec(
        program=Program(target="t.py"),
        workers=WorkerRange(low=workers, high=workers),
        run_dir="/tmp/run",
    )
    return ssh_job(spec, parse_hosts(hosts), REMOTE).plan


def test_only_the_hosts_that_are_needed() -> None:
    assert [task.agent for task in plan_of("a,b:2,c", 3).planned] == ["a", "b", "b"]
    with pytest.raises(UsageError, match="TFRUN-103"):
        plan_of("a,b:2", 4)


def test_one_host_alone_needs_no_network() -> None:
    assert {site.host for site in plan_of("a:2,b", 2).sites} == {"127.0.0.1"}
    assert [site.host for site in plan_of("a:2,b", 3).sites] == ["a", "b"]


def round_of(*agents: str) -> Round:
    tasks = tuple(PlannedTask(name=f"worker:{i}", agent=a) for i, a in enumerate(agents))
    return Round(number=0, tasks=tasks)


def test_who_is_missing_and_why() -> None:
    round, _ = step(round_of("a", "b"), AgentJoined(agent="a"))
    waiting = {"a": "old", "b": "its name does not resolve"}
    assert missing_lines(round, waiting, 5.2) == ["waiting for b (5 s): its name does not resolve"]
    assert missing_lines(round, {}, 5.2) == ["waiting for b (5 s): its agent has not joined"]
    round, _ = step(round, AgentJoined(agent="b"))
    round, _ = step(round, AgentPrepared(agent="b", ports=(1,)))
    (line,) = missing_lines(round, waiting, 10.0)
    assert line == "waiting for a (10 s): TensorFlow is being imported there"
    round, _ = step(round, Interrupt(signal="SIGINT"))
    assert missing_lines(round, waiting, 15.0) == []


def test_the_lines_about_many_hosts_are_few() -> None:
    lines = missing_lines(round_of(*(f"n{i}" for i in range(64))), {}, 5.0)
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == "waiting for 54 more hosts"
