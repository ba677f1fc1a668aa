"""Jobs over SSH on several hosts: who is where, and what keeps a job from starting."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from machines import Hosts, needs_hosts, thorough

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"
PLACE = """
import json, os, pathlib, platform
rank = os.environ["RANK"]
here = {"host": platform.node(), "directory": os.getcwd(), "passed": os.environ.get("PASSED")}
names = ("TF_CONFIG", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
here |= {name: os.environ[name] for name in names}
pathlib.Path(f"place-{rank}.json").write_text(json.dumps(here))
"""
# Where it is, and then the example of the README.
PLACE_AND_TRAIN = f"""{PLACE}
import runpy, sys
sys.argv = ["digits.py", "--epochs", "2"]
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
"""


def places(hosts: Hosts, count: int) -> list[dict[str, str]]:
    found = [hosts.directory / f"place-{rank}.json" for rank in range(count)]
    return [json.loads(path.read_text()) for path in found]


def test_three_hosts_train_the_example(hosts: Hosts) -> None:
    args = ("-H", "n1,alias-of-n2:2,n3", "--env", "PASSED", "--run-dir", "run")
    code, out, err = hosts.run(PLACE_AND_TRAIN, *args)
    assert code == 0, err
    assert "Epoch 2/2" in out and "accuracy" in out
    found = places(hosts, 4)
    assert [place["host"] for place in found] == ["n1", "n2", "n2", "n3"]
    assert [place["LOCAL_RANK"] for place in found] == ["0", "0", "1", "0"]
    assert [place["LOCAL_WORLD_SIZE"] for place in found] == ["1", "2", "2", "1"]
    assert {place["WORLD_SIZE"] for place in found} == {"4"}
    assert {place["passed"] for place in found} == {"through"}
    assert {place["directory"] for place in found} == {str(hosts.directory)}
    # The alias means nothing to the peers: what counts is where ssh arrived.
    addresses = json.loads(found[0]["TF_CONFIG"])["cluster"]["worker"]
    assert [a.rpartition(":")[0] for a in addresses] == [
        *("10.66.0.1", "10.66.0.2", "10.66.0.2", "10.66.0.3")
    ]


ON_SERVERS = """
import json, keras, numpy as np, pathlib, platform, tfrun
x = np.random.default_rng(0).normal(size=(960, 8)).astype("float32")
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(x, x.sum(axis=1), batch_size=16, epochs=3, verbose=0)
found = {"host": platform.node(), "iterations": int(model.optimizer.iterations)}
found["servers"] = sorted({weight.value.device.split("/")[3] for weight in model.weights})
pathlib.Path("found.json").write_text(json.dumps(found))
"""


@thorough
def test_parameter_servers_on_three_hosts(hosts: Hosts) -> None:
    code, _, err = hosts.run(ON_SERVERS, "-H", "n1,n2,n3", "--ps", "2", "--run-dir", "run")
    assert code == 0, err
    assert "3 workers · 2 parameter servers" in err
    assert json.loads((hosts.directory / "found.json").read_text()) == {
        "host": "n1",
        "iterations": 180,
        "servers": ["task:0", "task:1"],
    }


@thorough
def test_a_host_file_and_fewer_workers_than_slots(hosts: Hosts) -> None:
    lines = "behind slots=2  # a jump host; the rest is not needed\nn1\n"
    (hosts.directory / "hosts").write_text(lines)
    code, _, err = hosts.run(PLACE, "--hostfile", "hosts", "-n", "2")
    assert code == 0, err
    assert [place["host"] for place in places(hosts, 2)] == ["n2", "n2"]
    log = (hosts.lab.directory / "n2.sshd.log").read_text()
    assert "Connection from 10.66.0.3 " in log and "Connection from 10.66.0.1 " not in log


@thorough
def test_a_cluster_file(hosts: Hosts) -> None:
    cluster = {"worker": ["n2:2222", "n3:2222"], "chief": ["n1:2222"]}
    (hosts.directory / "cluster.json").write_text(json.dumps(cluster))
    code, out, err = hosts.run(PLACE_AND_TRAIN, "--cluster", "cluster.json")
    assert code == 0, err
    assert "Epoch 2/2" in out
    found = places(hosts, 3)
    assert [place["host"] for place in found] == ["n1", "n2", "n3"]
    assert json.loads(found[0]["TF_CONFIG"])["cluster"] == cluster


def test_without_a_shared_file_system(lone_hosts: Hosts) -> None:
    code, _, err = lone_hosts.run(PLACE, "-H", "n1,n2")
    assert code == 1
    assert "TFRUN-305" in err and "the agent n2 could not start" in err


def test_sync_copies_the_scripts_directory(lone_hosts: Hosts) -> None:
    (lone_hosts.directory / "helper.py").write_text("import pathlib; WORD = 'helped'")
    (lone_hosts.directory / "venv").mkdir()
    (lone_hosts.directory / "venv" / "large").touch()
    script = "import helper, pathlib\npathlib.Path('out').write_text(helper.WORD)\nprint('é', 1)"
    code, _, err = lone_hosts.run(script, "-H", "n1,n2", "--sync", "--run-dir", "run")
    assert code == 0, err
    for name in ("n1", "n2"):
        copy = lone_hosts.lab.file(name, lone_hosts.directory / "run" / "code" / name)
        names = {p.name for p in copy.iterdir()} - {"__pycache__"}
        assert names == {"helper.py", "out", "train.py"}
        assert (copy / "out").read_text() == "helped"
    # The launcher has what the hosts have written, each once, and no mark of its own is left.
    logs = lone_hosts.directory / "run" / "logs"
    names = {path.name for path in logs.iterdir()}
    zygotes = {"n1.zygote.log", "n2.zygote.log"}
    assert names == {"n1.agent.log", "n2.agent.log", "worker-0.log", "worker-1.log"} | zygotes
    for name, log in (("n1", "worker-0.log"), ("n2", "worker-1.log"), ("n2", "n2.zygote.log")):
        there = lone_hosts.lab.file(name, logs / log).read_text()
        assert (logs / log).read_text() == there, (name, log)
    assert (logs / "worker-1.log").read_text().count("é 1") == 1


def test_each_missing_host_is_named_with_its_reason_until_the_time_is_over(hosts: Hosts) -> None:
    hosts.lab.drop("n3", "22")  # a firewall swallows what comes in
    hosts.lab.crash("n2")
    args = ("-H", "n1,nowhere,n2,n3,10.66.0.9", "--join-timeout", "17")
    code, _, err = hosts.run(PLACE, *args)
    assert code == 1

    def lines(host: str) -> list[str]:
        beginning = f"tfrun: waiting for {host} ("
        return [line for line in err.splitlines() if line.startswith(beginning)]

    assert [len(lines(host)) for host in ("nowhere", "n2", "n3", "10.66.0.9")] == [3] * 4
    assert "(5 s): its name does not resolve" in lines("nowhere")[0]
    assert "(5 s): no " in lines("n2")[0] or "(5 s): connect" in lines("n2")[0]
    assert "(5 s): connecting" in lines("n3")[0]
    assert "(15 s): no answer" in lines("n3")[2]
    assert "(15 s): no " in lines("10.66.0.9")[2]  # no route, or no answer
    assert "TFRUN-303" in err and "did not form in 17 s" in err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["-H", "n1,stranger"], "TFRUN-304", "permission denied"),
        (["-H", "asker@n2"], "TFRUN-304", "Permission denied (password)"),
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
