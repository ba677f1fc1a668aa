"""TF_CONFIG: TensorFlow's own examples are read, malformed ones are refused with their place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrun.cluster.address import Address
from tfrun.cluster.tf_config import (
    ClusterSpec,
    TaskKey,
    TFConfig,
    check_against,
    parse_tf_config,
    render,
)
from tfrun.job.errors import UsageError


def config(cluster=None, task=None, **more) -> str:
    values = {"cluster": cluster, "task": task, **more}
    return json.dumps({key: value for key, value in values.items() if value is not None})


def task(type="worker", index=0, **more):
    return {"type": type, "index": index, **more}


TWO = {"worker": ["host1:2222", "host2:2222"]}
# The examples of tensorflow.org (multi_worker_with_keras, distributed_training,
# parameter_server_training, TFConfigClusterResolver, tf.train.ClusterSpec, TF 1's RunConfig),
# and of the platforms that write the variable: (text, roles, task).
VALID = {
    "multi_worker_with_keras": (
        config({"worker": ["localhost:12345", "localhost:23456"]}, task()),
        {"worker": 2},
        "worker[0]",
    ),
    "multi_worker_with_keras, second": (
        config({"worker": ["localhost:12345", "localhost:23456"]}, task(index=1)),
        {"worker": 2},
        "worker[1]",
    ),
    "distributed_training": (
        config(
            {
                "worker": ["host1:1234", "host2:1234", "host3:1234"],
                "ps": ["host4:1234", "host5:1234"],
            },
            task(index=1),
        ),
        {"worker": 3, "ps": 2},
        "worker[1]",
    ),
    "parameter_server_training": (
        config(
            {
                "worker": ["host1:1", "host2:1", "host3:1"],
                "ps": ["host4:1", "host5:1"],
                "chief": ["host6:1"],
            },
            task(index=1),
        ),
        {"worker": 3, "ps": 2, "chief": 1},
        "worker[1]",
    ),
    "parameter_server_training, evaluator": (
        config({"evaluator": ["host7:1"]}, task("evaluator")),
        {"evaluator": 1},
        "evaluator[0]",
    ),
    "RunConfig, evaluator outside": (
        config({"chief": ["host0:2222"], "worker": ["host1:2222"]}, task("evaluator")),
        {"chief": 1, "worker": 1},
        "evaluator[0]",
    ),
    "evaluator inside": (
        config({**TWO, "evaluator": ["host3:2222"]}, task()),
        {"worker": 2, "evaluator": 1},
        "worker[0]",
    ),
    "ps": (config({**TWO, "ps": ["host3:2222"]}, task("ps")), {"worker": 2, "ps": 1}, "ps[0]"),
    "coordinator without a task": (
        config({**TWO, "ps": ["host3:2222"]}),
        {"worker": 2, "ps": 1},
        "None",
    ),
    "cluster of one": (config({"worker": ["host:2222"]}, task()), {"worker": 1}, "worker[0]"),
    "chief alone": (config({"chief": ["host:2222"]}, task("chief")), {"chief": 1}, "chief[0]"),
    "object of indices": (
        config({"worker": {"1": "host2:2222", "0": "host1:2222"}}, task(index=1)),
        {"worker": 2},
        "worker[1]",
    ),
    "index in quotes": (config(TWO, task(index="1")), {"worker": 2}, "worker[1]"),
    "master": (
        config({"master": ["host0:2222"], "worker": ["host1:2222"]}, task("master")),
        {"chief": 1, "worker": 1},
        "chief[0]",
    ),
    "Google Cloud": (
        config(
            {"chief": ["training-chief-3d1a-0:2222"], "worker": ["training-worker-3d1a-0:2222"]},
            task("worker", 0, trial="1", cloud="b9…"),
            environment="cloud",
            job={"scale_tier": "CUSTOM", "worker_count": "1"},
        ),
        {"chief": 1, "worker": 1},
        "worker[0]",
    ),
    "Google Cloud, one machine": (
        config({}, task("master", 0, trial=""), environment="cloud"),
        {},
        "None",
    ),
    "Kubeflow": (
        config(
            {
                "worker": [
                    "mnist-worker-0.kubeflow.svc:2222",
                    "mnist-worker-1.kubeflow.svc:2222",
                ]
            },
            task(),
            environment="cloud",
        ),
        {"worker": 2},
        "worker[0]",
    ),
    "rpc_layer": (config(TWO, task(), rpc_layer="grpc"), {"worker": 2}, "worker[0]"),
    "IPv6": (
        config({"worker": ["[fd00::1]:2222", "[fd00::2]:2222"]}, task()),
        {"worker": 2},
        "worker[0]",
    ),
    "nothing": ("{}", {}, "None"),
    "null": ('{"cluster": null, "task": null}', {}, "None"),
    "empty objects": ('{"cluster": {}, "task": {}}', {}, "None"),
    "task without a cluster": ('{"task": {"type": "worker", "index": 0}}', {}, "None"),
}


@pytest.mark.parametrize("name", VALID)
def test_valid(name):
    text, roles, key = VALID[name]
    parsed = parse_tf_config(text)
    assert {role: len(tasks) for role, tasks in parsed.cluster.roles} == roles
    assert str(parsed.task) == key
    assert parse_tf_config(render(parsed.cluster, parsed.task)) == parsed


def test_the_object_form_is_put_in_order():
    cluster = parse_tf_config(VALID["object of indices"][0]).cluster
    assert [str(address) for address in cluster.addresses("worker")] == TWO["worker"]
    assert str(cluster.address(TaskKey(type="worker", index=1))) == "host2:2222"


# (text, code, the place that the message names)
MALFORMED = [
    # Not a JSON object.
    ("", "201", "TF_CONFIG"),
    ("   ", "201", "TF_CONFIG"),
    ("null", "201", "TF_CONFIG"),
    ("[]", "201", "TF_CONFIG"),
    ("3", "201", "TF_CONFIG"),
    ('"worker"', "201", "TF_CONFIG"),
    ("worker", "201", "TF_CONFIG"),
    ("{", "201", "TF_CONFIG"),
    ('{"cluster": }', "201", "TF_CONFIG"),
    ('{"cluster": {},}', "201", "TF_CONFIG"),
    ("{'cluster': {}}", "201", "TF_CONFIG"),
    ("{} {}", "201", "TF_CONFIG"),
    ("\ufeff{}", "201", "TF_CONFIG"),
    ("[" * 100_000, "201", "TF_CONFIG"),
    ('{"cluster": {}, "cluster": {}}', "201", "TF_CONFIG"),
    (json.dumps({"clusters": TWO, "task": task()}), "201", "TF_CONFIG"),
    (json.dumps({"Cluster": TWO, "task": task()}), "201", "TF_CONFIG"),
    (json.dumps({"cluster_spec": TWO, "task": task()}), "201", "TF_CONFIG"),
    (json.dumps({"cluster": TWO, "tasks": task()}), "201", "TF_CONFIG"),
    (json.dumps({"cluster": TWO, "TASK": task()}), "201", "TF_CONFIG"),
    # The cluster.
    (config([], task()), "202", "TF_CONFIG cluster"),
    (config("host1:2222", task()), "202", "TF_CONFIG cluster"),
    (config(["host1:2222"], task()), "202", "TF_CONFIG cluster"),
    (config(2, task()), "202", "TF_CONFIG cluster"),
    (config({"workers": ["a:1"]}, task()), "202", "TF_CONFIG cluster"),
    (config({"Worker": ["a:1"]}, task()), "202", "TF_CONFIG cluster"),
    (config({"": ["a:1"]}, task()), "202", "TF_CONFIG cluster"),
    (config({"gpu": ["a:1"]}, task()), "202", "TF_CONFIG cluster"),
    (config({"worker": None}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({"worker": "a:1"}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({"worker": 2}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({"worker": []}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({"worker": {}}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({**TWO, "ps": []}, task()), "202", "TF_CONFIG cluster.ps"),
    (config({"worker": {"1": "a:1"}}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({"worker": {"0": "a:1", "2": "b:1"}}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({"worker": {"-1": "a:1"}}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({"worker": {"a": "a:1"}}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({"worker": {"0": "a:1", "01": "b:1"}}, task()), "202", "TF_CONFIG cluster.worker"),
    (config({"worker": {"9" * 5000: "a:1"}}, task()), "202", "TF_CONFIG cluster.worker"),
    ('{"cluster": {"worker": {"0": "a:1", "0": "b:1"}}}', "202", "TF_CONFIG cluster.worker"),
    ('{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}', "202", "TF_CONFIG cluster"),
    (config({"chief": ["a:1", "b:1"], **TWO}, task()), "202", "TF_CONFIG cluster.chief"),
    (config({"master": ["a:1", "b:1"], **TWO}, task()), "202", "TF_CONFIG cluster.master"),
    (config({"chief": ["a:1"], "master": ["b:1"]}, task("chief")), "202", "TF_CONFIG cluster"),
    (config({**TWO, "evaluator": ["a:1", "b:1"]}, task()), "202", "TF_CONFIG cluster.evaluator"),
    (config({"ps": ["a:1"]}, task("ps")), "202", "TF_CONFIG cluster"),
    (config({"ps": ["a:1"], "chief": ["b:1"]}, task("chief")), "202", "TF_CONFIG cluster"),
    (config(TWO, task(), rpc_layer="http"), "202", "TF_CONFIG rpc_layer"),
    (config(TWO, task(), rpc_layer=1), "202", "TF_CONFIG rpc_layer"),
    # Addresses.
    (config({"worker": ["host1", "b:1"]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["a:1", "host2"]}, task()), "204", "TF_CONFIG cluster.worker[1]"),
    (config({"worker": ["a:1", ""]}, task()), "204", "TF_CONFIG cluster.worker[1]"),
    (config({"worker": ["a:1", None]}, task()), "204", "TF_CONFIG cluster.worker[1]"),
    (config({"worker": ["a:1", 2222]}, task()), "204", "TF_CONFIG cluster.worker[1]"),
    (config({"worker": [["a:1"]]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["a:1", "b:0"]}, task()), "204", "TF_CONFIG cluster.worker[1]"),
    (config({"worker": ["a:65536"]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["a:port"]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["a:-1"]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["grpc://a:1"]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["a:1 "]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["a:1,b:1"]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["::1:2222"]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["0.0.0.0:2222"]}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": {"0": "a"}}, task()), "204", "TF_CONFIG cluster.worker[0]"),
    (config({**TWO, "ps": ["ps0"]}, task()), "204", "TF_CONFIG cluster.ps[0]"),
    # The same address twice.
    (config({"worker": ["a:1", "a:1"]}, task()), "205", "TF_CONFIG cluster.worker[1]"),
    (config({"worker": ["a:1", "A:1"]}, task()), "205", "TF_CONFIG cluster.worker[1]"),
    (config({"worker": ["a:1"], "ps": ["a:1"]}, task()), "205", "TF_CONFIG cluster.ps[0]"),
    (config({"master": ["a:1"], "worker": ["a:1"]}, task()), "205", "TF_CONFIG cluster.worker[0]"),
    (config({"worker": ["localhost:1", "127.0.0.1:1"]}, task()), "205", "cluster.worker[1]"),
    # The task.
    (config(TWO), "203", "TF_CONFIG task"),
    (config({"worker": ["a:1"]}), "203", "TF_CONFIG task"),
    (config(TWO, {}), "203", "TF_CONFIG task"),
    (config({**TWO, "ps": ["p:1"], "chief": ["c:1"]}), "203", "TF_CONFIG task"),
    (config(TWO, "worker"), "203", "TF_CONFIG task"),
    (config(TWO, ["worker", 0]), "203", "TF_CONFIG task"),
    (config(TWO, 0), "203", "TF_CONFIG task"),
    (config(TWO, {"index": 0}), "203", "TF_CONFIG task.type"),
    (config(TWO, {"type": "worker"}), "203", "TF_CONFIG task.index"),
    (config(TWO, {"type": None, "index": 0}), "203", "TF_CONFIG task.type"),
    (config(TWO, task(0)), "203", "TF_CONFIG task.type"),
    (config(TWO, task(["worker"])), "203", "TF_CONFIG task.type"),
    (config(TWO, task("")), "203", "TF_CONFIG task.type"),
    (config(TWO, task("workers")), "203", "TF_CONFIG task.type"),
    (config(TWO, task("Worker")), "203", "TF_CONFIG task.type"),
    (config(TWO, task("gpu")), "203", "TF_CONFIG task.type"),
    (config(TWO, task(index=None)), "203", "TF_CONFIG task.index"),
    (config(TWO, task(index=-1)), "203", "TF_CONFIG task.index"),
    (config(TWO, task(index="-1")), "203", "TF_CONFIG task.index"),
    (config(TWO, task(index="first")), "203", "TF_CONFIG task.index"),
    (config(TWO, task(index="")), "203", "TF_CONFIG task.index"),
    (config(TWO, task(index="²")), "203", "TF_CONFIG task.index"),
    (config(TWO, task(index=0.5)), "203", "TF_CONFIG task.index"),
    (config(TWO, task(index=1.0)), "203", "TF_CONFIG task.index"),
    (config(TWO, task(index=True)), "203", "TF_CONFIG task.index"),
    (config(TWO, task(index=[0])), "203", "TF_CONFIG task.index"),
    (
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0, "index": 1}}',
        "203",
        "TF_CONFIG task",
    ),
    # A task that is not there.
    (config(TWO, task(index=2)), "206", "TF_CONFIG task.index"),
    (config(TWO, task(index=10**30)), "206", "TF_CONFIG task.index"),
    (config({"worker": ["a:1"]}, task(index=1)), "206", "TF_CONFIG task.index"),
    (config(TWO, task("chief")), "206", "TF_CONFIG task.type"),
    (config(TWO, task("master")), "206", "TF_CONFIG task.type"),
    (config(TWO, task("ps")), "206", "TF_CONFIG task.type"),
    (config({"chief": ["a:1"], **TWO}, task("chief", 1)), "206", "TF_CONFIG task.index"),
    (config(TWO, task("evaluator", 1)), "206", "TF_CONFIG task.index"),
    (config(None, task(index=1)), "206", "TF_CONFIG task.index"),
]


@pytest.mark.parametrize(("text", "code", "place"), MALFORMED, ids=lambda value: str(value)[:70])
def test_malformed(text, code, place):
    with pytest.raises(UsageError) as caught:
        parse_tf_config(text)
    error = caught.value
    assert error.code == f"TFRUN-{code}"
    assert f"(in {place})" in str(error) or f"(in TF_CONFIG {place})" in str(error)
    assert error.expected and error.exit_code == 2
    assert len(str(error)) < 500 and "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("{'cluster': {}}", "double quotes"),
        (json.dumps({"clusters": TWO}), 'Write "cluster"'),
        (config({"workers": ["a:1"]}, task()), 'Write "worker"'),
        (config(TWO, task("Worker")), 'Write "worker"'),
        (config({"worker": ["grpc://a:1"]}, task()), "Leave out everything up to"),
        (config({**TWO, "ps": []}, task()), "Leave out the role"),
    ],
)
def test_common_mistakes_get_advice(text, advice):
    with pytest.raises(UsageError, match=advice):
        parse_tf_config(text)


def test_the_message_names_the_place_it_was_given():
    with pytest.raises(UsageError, match=r"\(in cluster\.json cluster\.worker\[0\]\)"):
        parse_tf_config(config({"worker": ["a"]}, task()), where="cluster.json")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["worker", "chief", "ps", "cluster", "task", "index", "a:1", "0"])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cluster", "task", "worker", "chief", "ps", "type", "index", "0"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_read_or_refused_with_a_code(value):
    try:
        parsed = parse_tf_config(json.dumps(value))
    except UsageError as error:
        assert error.where.startswith("TF_CONFIG")
    else:
        assert (
            parsed.task is None or parsed.task.type == "evaluator" or parsed.task in parsed.cluster
        )


@st.composite
def configs(draw) -> TFConfig:
    chief, workers = draw(st.integers(0, 1)), draw(st.integers(1, 5))
    counts = {"chief": chief, "worker": workers, "ps": draw(st.integers(0, 3))}
    roles = draw(st.permutations([role for role, count in counts.items() if count]))
    ports = draw(st.permutations(range(1, 20)))
    addresses = iter(Address(host="host", port=port) for port in ports)
    cluster = ClusterSpec.of(
        {role: [next(addresses) for _ in range(counts[role])] for role in roles}
    )
    return TFConfig(cluster=cluster, task=draw(st.sampled_from(list(cluster.tasks()))))


@given(configs())
def test_what_is_written_is_read_again(original):
    assert parse_tf_config(render(original.cluster, original.task)) == original


@pytest.mark.parametrize(
    ("text", "workers", "ps", "fits"),
    [
        ("{}", (4, 4), 2, True),
        (config(TWO, task()), None, None, True),
        (config(TWO, task()), (2, 2), 0, True),
        (config(TWO, task()), (1, 4), None, True),
        (config(TWO, task()), (3, 3), None, False),
        (config(TWO, task()), (3, 8), None, False),
        (config(TWO, task()), (1, 1), None, False),
        (config(TWO, task()), None, 1, False),
        (config({"chief": ["c:1"], **TWO}, task()), (3, 3), None, True),
        (config({"chief": ["c:1"], **TWO}, task()), (2, 2), None, False),
        (config({"chief": ["c:1"], **TWO, "ps": ["p:1"]}, task()), (2, 2), 1, True),
        (config({"chief": ["c:1"], **TWO, "ps": ["p:1"]}, task()), (3, 3), 1, False),
        (config({"chief": ["c:1"], **TWO, "ps": ["p:1"]}, task()), (2, 2), 2, False),
    ],
)
def test_the_command_line_must_say_the_same(text, workers, ps, fits):
    parsed = parse_tf_config(text)
    if fits:
        check_against(parsed, workers=workers, ps=ps)
    else:
        with pytest.raises(UsageError) as caught:
            check_against(parsed, workers=workers, ps=ps)
        assert caught.value.code == "TFRUN-207"
        assert ("--ps" if workers is None or ps == 2 else "-n") in caught.value.where
