"""Wrong hosts on the command line: one coded line, exit code 2, nothing started or written."""

from __future__ import annotations

import pytest

from conftest import Jobs

CLUSTER = '{"cluster": {"worker": ["a:2222"]}, "task": {"type": "worker", "index": 0}}'


@pytest.mark.parametrize(
    ("code", "told", "args"),
    [
        ("TFRUN-209", "entry 2", ["-H", "a,,b"]),
        ("TFRUN-209", "not a host", ["-H", "-oProxyCommand=touch x"]),
        ("TFRUN-210", "'n2' appears twice", ["-H", "n[1-3],n2"]),
        ("TFRUN-210", "in hosts, line 3", ["--hostfile", "hosts"]),
        ("TFRUN-105", "'none' cannot be read: No such file", ["--hostfile", "none"]),
        ("TFRUN-105", "cannot be read", ["--hostfile", "."]),
        ("TFRUN-105", "cannot be read", ["--hostfile", "binary"]),
        ("TFRUN-107", "both -H and --hostfile", ["-H", "a", "--hostfile", "hosts"]),
        ("TFRUN-107", "--remote-dir", ["--remote-dir", "/x"]),
        ("TFRUN-107", "--remote-python", ["--remote-python", "/x"]),
        ("TFRUN-107", "--env", ["--env", "HOME"]),
        ("TFRUN-107", "--sync", ["--sync"]),
        ("TFRUN-107", "both --sync", ["-H", "a", "--sync", "--remote-dir", "/x"]),
        ("TFRUN-103", "at most 3", ["-H", "a,b:2", "-n", "4"]),
        ("TFRUN-103", "-n", ["-H", "a,b:2", "-n", "0"]),
        ("TFRUN-105", "'NO_SUCH' is not set", ["-H", "a", "--env", "NO_SUCH"]),
        ("TFRUN-108", "--join-timeout is 2 s", ["--join-timeout", "2"]),
        ("TFRUN-108", "--launcher-timeout is 5 s", ["-H", "a", "--launcher-timeout", "5"]),
        ("TFRUN-105", "--join-timeout", ["--join-timeout", "0"]),
    ],
)
def test_wrong_hosts(jobs: Jobs, code: str, told: str, args: list[str]) -> None:
    script = jobs.script("print('ran')")
    jobs.script("a\n\nA slots=2\n", "hosts")
    (jobs.directory / "binary").write_bytes(b"\xff\xfe")
    before = sorted(jobs.directory.rglob("*"))
    result = jobs.run(*args, script, timeout=30)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"tfrun: {code}: ") and told in line
    assert sorted(jobs.directory.rglob("*")) == before


def test_hosts_and_a_tf_config_contradict_each_other(jobs: Jobs) -> None:
    script = jobs.script("print('ran')")
    result = jobs.run("-H", "a", script, env={"TF_CONFIG": CLUSTER}, timeout=30)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("tfrun: TFRUN-107: TF_CONFIG states a cluster")
