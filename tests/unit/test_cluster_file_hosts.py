"""Cluster files: what is read, what is refused, and which task is where."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tfrun.cluster.cluster_file import hosts_of, is_local, parse_cluster_file, workers_of
from tfrun.control.agent_orders import start_tasks
from tfrun.control.membership import next_plan
from tfrun.control.placement import Site, fixed_plan
from tfrun.job.errors import UsageError
from tfrun.job.spec import JobSpec, Program, WorkerRange
from tfrun.launcher.ssh.backend import ssh_job
from tfrun.launcher.ssh.command import Remote

FILE = {"worker": ["b:2222", "B:2223", "c:2222"], "chief": ["a:2222"]}
SPEC = JobSpec(
    program=Program(target="t.py"), workers=WorkerRange(low=4, high=4), run_dir="/tmp/run"
)


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("", "TFRUN-202", "not JSON"),
        ("[]", "TFRUN-202", "not a JSON object"),
        ("{}", "TFRUN-202", "has no tasks"),
        ('{"workers": ["a:1"]}', "TFRUN-202", 'Write "worker"'),
        ('{"worker": []}', "TFRUN-202", "no tasks"),
        ('{"worker": ["a"]}', "TFRUN-204", "has no port"),
        ('{"worker": ["a:1", "a:1"]}', "TFRUN-205", "same place as c.json.worker[0]"),
        ('{"worker": ["a:1"], "worker": ["b:1"]}', "TFRUN-202", "twice"),
        ('{"chief": ["a:1", "b:1"]}', "TFRUN-202", "2 tasks"),
        ('{"chief": ["a:1"], "ps": ["b:1"]}', "TFRUN-202", "no worker"),
        ('{"worker": ["a:1"], "evaluator": ["b:1"]}', "TFRUN-220", "'evaluator'"),
    ],
)
def test_what_is_refused(text: str, code: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_cluster_file(text, where="c.json")
    assert caught.value.code == code
    assert says in str(caught.value) and "c.json" in str(caught.value)


def test_each_task_is_on_its_host_and_keeps_its_address() -> None:
    cluster = parse_cluster_file(json.dumps(FILE), where="c.json")
    hosts = hosts_of(cluster)
    assert [(host.name, host.slots) for host in hosts] == [("a", 1), ("b", 2), ("c", 1)]
    assert not is_local(cluster)
    plan = ssh_job(SPEC, hosts, Remote(python="p", directory="/"), cluster).plan
    assert [(task.name, task.agent) for task in plan.planned] == [
        *(("chief:0", "a"), ("worker:0", "b"), ("worker:1", "b"), ("worker:2", "c"))
    ]
    assert plan.workers == 4 and plan.chief == "chief:0"
    assert [plan.ports_of(agent) for agent in "abc"] == [0, 0, 0]
    assert [plan.stated_ports_of(agent) for agent in "abc"] == [[2222], [2222, 2223], [2222]]
    tasks = start_tasks(plan, SPEC, 0, dict.fromkeys("abc", ()), None)
    environment = tasks["b"][1].environment
    config = json.loads(environment["TF_CONFIG"])
    assert {role: list(map(str.lower, tasks)) for role, tasks in config["cluster"].items()} == {
        role: list(map(str.lower, tasks)) for role, tasks in FILE.items()
    }
    assert config["task"] == {"type": "worker", "index": 1}
    assert (environment["RANK"], environment["LOCAL_RANK"]) == ("2", "1")
    assert (environment["WORLD_SIZE"], environment["LOCAL_WORLD_SIZE"]) == ("4", "2")


def test_a_task_never_moves() -> None:
    cluster = parse_cluster_file(json.dumps(FILE), where="c.json")
    sites = [Site(agent=h.name, host=h.name, slots=h.slots) for h in hosts_of(cluster)]
    plan = fixed_plan(cluster, sites)
    assert next_plan(SPEC, plan, "abc") is plan
    assert next_plan(SPEC, plan, "ab") is None


PS = {"worker": ["b:2222", "c:2222"], "ps": ["d:2222", "b:2223"]}


@pytest.mark.parametrize("chief", [None, "a:2221"])
def test_parameter_servers_and_their_chief(chief: str | None) -> None:
    """Where the file names none, it is beside the first worker, at a port that is free there."""
    stated = {**PS, **({"chief": [chief]} if chief else {})}
    cluster = parse_cluster_file(json.dumps(stated), where="c.json")
    assert workers_of(cluster) == 2
    hosts = hosts_of(cluster)
    assert [host.name for host in hosts] == (["a"] if chief else []) + ["b", "c", "d"]
    spec = replace(SPEC, ps=2, workers=WorkerRange(low=2, high=2))
    plan = ssh_job(spec, hosts, Remote(python="p", directory="/"), cluster).plan
    place = "a" if chief else "b"
    assert [(task.name, task.agent, task.runs) for task in plan.planned] == [
        ("chief:0", place, "script"),
        *(("worker:0", "b", "server"), ("worker:1", "c", "server")),
        *(("ps:0", "d", "server"), ("ps:1", "b", "server")),
    ]
    assert {h.name: plan.ports_of(h.name) for h in hosts if plan.ports_of(h.name)} == (
        {} if chief else {"b": 1}
    )
    ports = {host.name: (4000,) * plan.ports_of(host.name) for host in hosts}
    told = start_tasks(plan, spec, 0, ports, None)
    config = json.loads(told["d"][0].environment["TF_CONFIG"])
    assert config["cluster"] == {**PS, "chief": [chief or "b:4000"]}
    assert config["task"] == {"type": "ps", "index": 0}
    environment = told[place][0].environment
    assert (environment["RANK"], environment["WORLD_SIZE"]) == ("0", "3")
    everywhere = [host.name for host in hosts]
    assert next_plan(spec, plan, everywhere) is plan
    assert next_plan(spec, plan, set(everywhere) - {"d"}) is None


def test_one_machine() -> None:
    text = '{"worker": ["localhost:2222", "127.0.0.1:2223", "[::1]:2224"]}'
    cluster = parse_cluster_file(text, where="c.json")
    assert is_local(cluster)
    plan = fixed_plan(cluster, [Site(agent="local", host="127.0.0.1", slots=3)])
    assert [task.agent for task in plan.planned] == ["local"] * 3
    assert [task.local_rank for task in plan.tasks.values()] == [0, 1, 2]
