"""A cluster that somebody else made."""

from __future__ import annotations

import json
import socket

import pytest

from tfrun.cluster.external_cluster import (
    external_aside,
    external_environment,
    external_seed,
    external_task,
    external_tf_config,
    is_server,
)
from tfrun.cluster.ports import PortReservation
from tfrun.control.agent_orders import start_tasks
from tfrun.control.placement import Site, make_plan
from tfrun.job.errors import UsageError
from tfrun.job.spec import JobSpec, Program


def tf_config(port: int, *, chief: str = "chief", type: str = "worker", **more) -> str:
    cluster = {chief: ["10.0.0.1:2222"], "worker": [f"10.0.0.2:{port}"]}
    return json.dumps({"cluster": cluster, "task": {"type": type, "index": 0}, **more})


@pytest.fixture
def free_port():
    with PortReservation(1) as reservation:
        yield reservation.ports[0]


def ask(text: str | None, workers=None, ps=None) -> str:
    environment = {} if text is None else {"TF_CONFIG": text}
    return external_tf_config(environment, workers=workers, ps=ps)


@pytest.mark.parametrize(
    ("role", "ps", "named", "is_one"),
    [
        ("ps", True, "ps[0]", True),
        ("worker", True, "worker[1]", True),
        ("chief", True, "chief[0]", False),
        ("evaluator", False, "evaluator[0]", False),
        ("worker", False, "worker[0]", False),  # its log has this name, whoever it is
        ("chief", False, "worker[0]", False),
    ],
)
def test_which_task_it_is(role: str, ps: bool, named: str, is_one: bool) -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], **({"ps": ["d:1"]} if ps else {})}
    task = {"type": role, "index": int(role == "worker")}
    text = json.dumps({"cluster": cluster, "task": task})
    assert (str(external_task(text)), is_server(text)) == (named, is_one)
    assert (external_aside(text) is not None) == (is_one or role == "evaluator")
    spec = JobSpec(program=Program(target="t.py"), run_dir="/run", ps=0)
    plan = make_plan(spec, [Site(agent="local", host="127.0.0.1", slots=1)], text)
    (task,) = plan.planned
    assert (task.runs == "server", bool(plan.serves)) == (is_one, is_one)
    assert task.replaceable == (ps and role == "worker")
    (message,) = start_tasks(plan, spec, 0, {"local": ()}, None)["local"]
    assert ("await_chief" in message.settings) is is_one
    assert message.called == f"{role} {int(role == 'worker')}"
    assert plan.part == f"{message.called} of a cluster of {4 if ps else 3}"
    waits = {"worker": 0 if ps else 2, "chief": 3 if ps else 2}.get(role, 0)
    assert len(message.awaits) == waits


@pytest.mark.parametrize("text", [None, "{}", '{"cluster": {}, "environment": "cloud"}'])
def test_without_a_cluster_the_process_is_tfruns_own(text):
    assert ask(text) == ""


def test_the_text_stays_as_it_is(free_port):
    text = tf_config(free_port, environment="cloud", job={"trial": "3"})
    assert ask(text, workers=(2, 2)) == text


@pytest.mark.parametrize("type", ["master", "worker"])
def test_a_master_becomes_a_chief_and_the_rest_stays(free_port, type):
    text = tf_config(free_port, chief="master", type=type, environment="cloud")
    if type == "master":
        text = text.replace("10.0.0.1:2222", f"10.0.0.1:{free_port}")
        text = text.replace(f"10.0.0.2:{free_port}", "10.0.0.2:2222")
    found = json.loads(ask(text))
    assert sorted(found["cluster"]) == ["chief", "worker"]
    assert found["task"]["type"] == ("chief" if type == "master" else "worker")
    assert found["environment"] == "cloud"


def test_the_own_port_must_be_free():
    with socket.create_server(("", 0)) as server, pytest.raises(UsageError) as caught:
        ask(tf_config(server.getsockname()[1]))
    assert caught.value.code == "TFRUN-208"
    assert caught.value.where == "TF_CONFIG cluster.worker[0]"


def test_the_ports_of_others_are_not_looked_at(free_port):
    with socket.create_server(("", 0)) as server:
        text = tf_config(free_port).replace("10.0.0.1:2222", f"10.0.0.1:{server.getsockname()[1]}")
        assert ask(text) == text


@pytest.mark.parametrize(
    ("text", "workers", "code"),
    [("", None, "TFRUN-201"), ('{"cluster": 3}', None, "TFRUN-202"), ("TWO", (3, 3), "TFRUN-207")],
)
def test_malformed_and_contradictory(free_port, text, workers, code):
    with pytest.raises(UsageError) as caught:
        ask(tf_config(free_port) if text == "TWO" else text, workers=workers)
    assert caught.value.code == code


def test_the_environment_of_the_task(free_port):
    text = tf_config(free_port)
    assert external_environment(text, 2) == {
        "TF_CONFIG": text,
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "TFRUN_ROUND": "2",
    }


@pytest.mark.parametrize("role", ["chief", "worker", "ps", "evaluator"])
def test_only_evaluators_see_evaluators(role):
    roles = ("chief", "worker", "ps", "evaluator")
    cluster = {name: [f"10.0.0.{i}:2222"] for i, name in enumerate(roles)}
    text = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
    seen = json.loads(external_environment(text, 0)["TF_CONFIG"])
    assert seen["task"] == {"type": role, "index": 0}
    del cluster["evaluator"]
    assert {**seen["cluster"], **cluster} == seen["cluster"]
    assert ("evaluator" in seen["cluster"]) == (role == "evaluator")


def test_all_tasks_of_a_cluster_draw_the_same() -> None:
    mine, other, elsewhere = tf_config(2222), tf_config(2222, type="chief"), tf_config(2223)
    assert external_seed(mine) == external_seed(other) != external_seed(elsewhere)
    assert 0 <= external_seed(mine) < 2**31
