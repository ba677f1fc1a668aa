"""Jobs over SSH on several hosts, and what may happen to hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import TFRUN, Lab, why_not

from conftest import wait_until

JOB_SECONDS = 120
REASON = why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=f"no hosts to test with: {REASON}")

PLACE = """
import json, os, pathlib, platform
rank = os.environ["RANK"]
here = {"host": platform.node(), "directory": os.getcwd(), "passed": os.environ.get("PASSED")}
names = ("TF_CONFIG", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
here |= {name: os.environ[name] for name in names}
pathlib.Path(f"place-{rank}.json").write_text(json.dumps(here))
"""
ALL_REDUCE = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
context = tf.distribute.get_replica_context
reduced = strategy.run(tf.function(lambda: context().all_reduce("SUM", tf.constant(1.0))))
print("sum", float(strategy.experimental_local_results(reduced)[0]), flush=True)
"""
FIT = """
import keras, numpy as np, tfrun
x = np.random.default_rng(0).normal(size=(96, 4)).astype("float32")
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
history = model.fit(x, x.sum(axis=1), batch_size=24, epochs=2, verbose=0)
print("losses", len(history.history["loss"]), flush=True)
"""
# Steps until somebody ends it; tells by a file that all have met.
ENDLESS = """
import os, pathlib, time
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
context = tf.distribute.get_replica_context
step = tf.function(lambda: strategy.run(lambda: context().all_reduce("SUM", tf.constant(1.0))))
step()
pathlib.Path("running-" + os.environ["RANK"]).touch()
while True:
    step()
    time.sleep(0.01)
"""


class Hosts:
    """A lab, and tfrun started on its first host."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab, self.directory = lab, directory
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TFRUN_")},
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
            "PASSED": "through",
        }
        self.environment.pop("TF_CONFIG", None)

    def start(self, script: str, *args: str) -> subprocess.Popen:
        (self.directory / "train.py").write_text(script)
        command = [TFRUN, *args, "train.py"]
        return self.lab.start("n1", command, self.directory, self.environment)

    def run(self, script: str, *args: str) -> tuple[int, str, str]:
        """Returns the exit code, the standard output and the standard error of a whole job."""
        return self.end(self.start(script, *args))

    def end(self, process: subprocess.Popen, seconds: float = JOB_SECONDS) -> tuple[int, str, str]:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.kill(self.lab.pid_of(process), signal.SIGKILL)
            out, err = process.communicate(timeout=10)
            pytest.fail(f"more than {seconds} s\n{out[-2000:]}\n{err[-4000:]}")
        return process.returncode, out, err

    def wait_until_running(self, ranks: int) -> None:
        wanted = [self.directory / f"running-{rank}" for rank in range(ranks)]
        wait_until(lambda: all(path.exists() for path in wanted), "all steps run", JOB_SECONDS)

    def left(self) -> list[str]:
        """Returns what still runs on any host."""
        return [text for name in self.lab.names for text in self.lab.processes(name)]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts, n1 to n3, with one file system."""
    yield from three_hosts(tmp_path, shared=True)


@pytest.fixture
def lone_hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts, of which n2 and n3 do not see the working directory of n1."""
    yield from three_hosts(tmp_path, shared=False)


def three_hosts(tmp_path: Path, *, shared: bool) -> Iterator[Hosts]:
    """At the end nothing may run on them any more."""
    directory = tmp_path / "lab"
    work = tmp_path / "work"
    directory.mkdir()
    work.mkdir()
    lab = Lab(directory, 3, None if shared else work)
    try:
        lab.up()
        there = Hosts(lab, work)
        yield there
        deadline = time.monotonic() + 8
        while (left := there.left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, f"processes were left behind: {left}"
    finally:
        lab.down()


def test_who_is_where(hosts: Hosts) -> None:
    code, _, err = hosts.run(PLACE, "-H", "n1,alias-of-n2:2,n3", "--env", "PASSED")
    assert code == 0, err
    places = [json.loads((hosts.directory / f"place-{r}.json").read_text()) for r in range(4)]
    assert [place["host"] for place in places] == ["n1", "n2", "n2", "n3"]
    assert [place["LOCAL_RANK"] for place in places] == ["0", "0", "1", "0"]
    assert [place["LOCAL_WORLD_SIZE"] for place in places] == ["1", "2", "2", "1"]
    assert {place["WORLD_SIZE"] for place in places} == {"4"}
    assert {place["passed"] for place in places} == {"through"}
    assert {place["directory"] for place in places} == {str(hosts.directory)}
    # The alias means nothing to the peers: what counts is where ssh arrived.
    addresses = json.loads(places[0]["TF_CONFIG"])["cluster"]["worker"]
    assert [a.rpartition(":")[0] for a in addresses] == [
        *("10.66.0.1", "10.66.0.2", "10.66.0.2", "10.66.0.3")
    ]


def test_a_host_file_and_fewer_workers_than_slots(hosts: Hosts) -> None:
    (hosts.directory / "hosts").write_text("n2 slots=2  # the rest is not needed\nn3\n")
    code, _, err = hosts.run(PLACE, "--hostfile", "hosts", "-n", "2")
    assert code == 0, err
    places = [json.loads((hosts.directory / f"place-{r}.json").read_text()) for r in range(2)]
    assert [place["host"] for place in places] == ["n2", "n2"]


def test_without_a_shared_file_system(lone_hosts: Hosts) -> None:
    code, _, err = lone_hosts.run(PLACE, "-H", "n1,n2")
    assert code == 1
    assert "TFRUN-305" in err and "the agent n2 could not start" in err


def test_sync_copies_the_scripts_directory(lone_hosts: Hosts) -> None:
    (lone_hosts.directory / "helper.py").write_text("import pathlib; WORD = 'helped'")
    (lone_hosts.directory / "venv").mkdir()
    (lone_hosts.directory / "venv" / "large").touch()
    script = "import helper, pathlib\npathlib.Path('out').write_text(helper.WORD)"
    code, _, err = lone_hosts.run(script, "-H", "n1,n2", "--sync", "--run-dir", "run")
    assert code == 0, err
    for name in ("n1", "n2"):
        copy = lone_hosts.lab.file(name, lone_hosts.directory / "run" / "code" / name)
        names = {p.name for p in copy.iterdir()} - {"__pycache__"}
        assert names == {"helper.py", "out", "train.py"}
        assert (copy / "out").read_text() == "helped"
        assert lone_hosts.lab.file(name, lone_hosts.directory / "run" / "logs").is_dir()


def test_all_reduce_on_three_hosts(hosts: Hosts) -> None:
    code, out, err = hosts.run(ALL_REDUCE, "-H", "n1,n2,n3")
    assert (code, out) == (0, "sum 3.0\n"), err


def test_fit_on_three_hosts(hosts: Hosts) -> None:
    code, out, err = hosts.run(FIT, "-H", "n[1-3]")
    assert (code, out) == (0, "losses 2\n"), err


def test_a_name_that_does_not_resolve(hosts: Hosts) -> None:
    code, _, err = hosts.run(PLACE, "-H", "n1,nowhere", "--join-timeout", "12")
    assert code == 1
    lines = [line for line in err.splitlines() if "waiting for nowhere" in line]
    assert lines[0].startswith("tfrun: waiting for nowhere (5 s): its name does not resolve")
    assert "TFRUN-303" in err and "did not form in 12 s" in err


def test_a_port_whose_packets_are_dropped(hosts: Hosts) -> None:
    hosts.lab.drop("n3", 22)
    code, _, err = hosts.run(PLACE, "-H", "n1,n3", "--join-timeout", "17")
    assert code == 1
    assert "tfrun: waiting for n3 (5 s): connecting" in err
    assert "tfrun: waiting for n3 (15 s): no answer" in err
    assert "TFRUN-303" in err


def test_nobody_listens(hosts: Hosts) -> None:
    code, _, err = hosts.run(PLACE, "-H", "n1,10.66.0.9", "--join-timeout", "12")
    assert code == 1
    assert "waiting for 10.66.0.9 (10 s): no " in err  # no route, or no answer
    assert "TFRUN-303" in err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["-H", "n1,stranger"], "TFRUN-304", "permission denied"),
        (["-H", "n1,localhost"], "TFRUN-304", "host key is unknown"),
        (["-H", "n2", "--remote-python", "/no/python"], "TFRUN-305", "/no/python cannot be run"),
        (["-H", "n2", "--remote-python", "/bin/true"], "TFRUN-301", "could not start"),
        (["-H", "n2", "--remote-dir", "/no/where"], "TFRUN-305", "'/no/where' cannot be entered"),
        (["-H", "n2", "--remote-dir", "/"], "TFRUN-305", "'train.py' does not exist"),
    ],
)
def test_what_can_never_work_ends_at_once(
    hosts: Hosts, args: list[str], code: str, says: str
) -> None:
    began = time.monotonic()
    exit_code, _, err = hosts.run(PLACE, *args)
    assert time.monotonic() - began < 15
    text = " ".join(err.replace("│", " ").split())
    assert exit_code == 1
    assert code in text and says in text, err
    assert args[1].rpartition(",")[2] in text


def test_a_host_crashes(hosts: Hosts) -> None:
    process = hosts.start(ENDLESS, "-H", "n1,n2,n3", "--join-timeout", "8")
    hosts.wait_until_running(3)
    hosts.lab.crash("n2")
    began = time.monotonic()
    code, _, err = hosts.end(process, 40)
    assert time.monotonic() - began <= 20
    assert code == 1
    assert "the agent n2 was lost" in err and "waiting for n2, at most 8 s" in err
    assert "TFRUN-303" in err and "did not return in 8 s" in err


def test_a_host_is_cut_off(hosts: Hosts) -> None:
    process = hosts.start(ENDLESS, "-H", "n1,n2,n3", "--max-restarts", "0")
    hosts.wait_until_running(3)
    hosts.lab.cut("n3")
    began = time.monotonic()
    code, _, err = hosts.end(process, 30)
    assert time.monotonic() - began <= 10
    assert code == 1
    assert "TFRUN-301" in err and "the agent n3 was lost" in err
    # Nobody can tell it so: it ends its workers by itself.
    wait_until(lambda: not hosts.lab.processes("n3"), "the cut host ends its workers", 10)


def test_the_launcher_is_killed(hosts: Hosts) -> None:
    process = hosts.start(ENDLESS, "-H", "n1,n2,n3")
    hosts.wait_until_running(3)
    assert len(hosts.left()) > 6
    os.kill(hosts.lab.pid_of(process), signal.SIGKILL)
    process.communicate(timeout=10)
    wait_until(lambda: not hosts.left(), "nothing runs on any host", 5)


def test_ctrl_c(hosts: Hosts) -> None:
    process = hosts.start(ENDLESS, "-H", "n1,n2,n3")
    hosts.wait_until_running(3)
    os.kill(hosts.lab.pid_of(process), signal.SIGINT)
    code, _, err = hosts.end(process, 15)
    assert code == 130, err
