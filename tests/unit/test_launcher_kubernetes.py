"""Manifests: valid for Kubernetes, and right for tfrun."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from kubeflow.training import models as training
from kubeflow_trainer_api import models
from kubernetes import client

from tfrun.cli.render import render
from tfrun.cluster.pods import group_of, health_port
from tfrun.job.errors import UsageError
from tfrun.job.timeouts import Timeouts
from tfrun.launcher.pods.manifests import KINDS, Deployment, manifests

SMALL = Deployment(name="train", image="i:1", command=["train.py"], token="t0ken")
FULL = Deployment(
    **{
        "name": "train",
        "image": "r.example.org/i:1",
        "command": ["-m", "pkg.train", "--epochs", "3"],
    },
    **{"per_pod": 1, "gpus": 2, "cpu": "500m", "memory": "8Gi", "shm": "4Gi", "namespace": "ml"},
    **{"storage_class": "nfs", "token": "t0ken", "environment": {"A": "b=c"}, "directory": "/w"},
    grace=120,
)
ENCRYPTED = Deployment(
    name="train", image="i:1", command=["train.py"], token="t0ken", tls_secret="own"
)
CASES = [(what, kind) for what in (SMALL, FULL) for kind in KINDS]
CASES += [(ENCRYPTED, kind) for kind in KINDS if kind != "tfjob"]


def rendered(what: Deployment, kind: str) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in manifests(what, kind)}


def pod_of(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    if "Job" in documents:
        return documents["Job"]["spec"]["template"]["spec"]
    if "JobSet" in documents:
        (job,) = documents["JobSet"]["spec"]["replicatedJobs"]
        return job["template"]["spec"]["template"]["spec"]
    return documents["TFJob"]["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]


def contained(part: Any, whole: Any, where: str = "") -> None:
    """What a model does not know it leaves out."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert key in whole, f"{where}.{key} is not known"
            contained(value, whole[key], f"{where}.{key}")
    elif isinstance(part, list):
        assert len(part) == len(whole), where
        for number, (a, b) in enumerate(zip(part, whole, strict=True)):
            contained(a, b, f"{where}[{number}]")
    else:
        assert part == whole, where


@pytest.mark.parametrize("version", ["1.30", "latest"])
@pytest.mark.parametrize(("what", "kind"), CASES)
def test_the_strict_schemas_take_it(what, kind, version):
    if version == "latest":
        version = kubernetes_validate.latest_version()
    for document in manifests(what, kind):
        if document["kind"] not in ("JobSet", "TFJob"):
            kubernetes_validate.validate(document, version, strict=True)
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    pod = {**template, "spec": pod_of(rendered(what, kind))}
    kubernetes_validate.validate(pod, version, strict=True)


def test_the_schemas_can_refuse():
    wrong = manifests(SMALL, "job")[-1]
    wrong["spec"]["complettions"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.30", strict=True)


@pytest.mark.parametrize("what", [SMALL, FULL, ENCRYPTED])
def test_the_models_know_every_field(what):
    job = rendered(what, "job")["Job"]
    contained(job, models.IoK8sApiBatchV1Job.from_dict(job).to_dict())
    job_set = rendered(what, "jobset")["JobSet"]
    contained(job_set, models.JobsetV1alpha2JobSet.from_dict(job_set).to_dict())


@pytest.mark.parametrize("what", [SMALL, FULL])
def test_the_training_operators_models_know_every_field(what, monkeypatch):
    for name, model in vars(training).items():
        if name.startswith("KubeflowOrgV1"):  # the client looks for all classes in its own models
            monkeypatch.setattr(client.models, name, model, raising=False)
    api, job = client.ApiClient(), rendered(what, "tfjob")["TFJob"]

    def read(document):
        answer = SimpleNamespace(data=json.dumps(document))
        return api.sanitize_for_serialization(api.deserialize(answer, "KubeflowOrgV1TFJob"))

    assert read(job) == job
    wrong = {**job, "spec": {**job["spec"], "tfReplicaSpec": {}}}
    assert read(wrong) == job


@pytest.mark.parametrize(("what", "kind"), CASES)
def test_the_rules_of_all_kinds(what, kind):
    documents = rendered(what, kind)
    pod = pod_of(documents)
    (container,) = pod["containers"]
    for document in documents.values():
        assert len(document["metadata"]["name"]) <= 63
        assert document["metadata"].get("namespace", "") == what.namespace
    mounts = [mount["name"] for mount in container["volumeMounts"]]
    assert mounts == [volume["name"] for volume in pod["volumes"]]
    assert pod["terminationGracePeriodSeconds"] > Timeouts.preempt_grace
    assert container["command"] == ["tfrun"]
    saving = int(container["args"][container["args"].index("--grace") + 1])
    assert saving >= Timeouts.preempt_grace and saving < what.grace
    assert container["args"][-len(what.command) :] == list(what.command)
    claim = pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert documents["PersistentVolumeClaim"]["metadata"]["name"] == claim
    assert documents["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    if what.gpus:
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_the_pods_find_each_other(kind):
    documents = rendered(Deployment(**{**vars_of(FULL), "workers": workers("2:8")}), kind)
    pod = pod_of(documents)
    (container,) = pod["containers"]
    plain = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    group = group_of({**plain, "TFRUN_GROUP_INDEX": "7"})
    assert group is not None and group.slots == 1
    prefix = "train-" if kind == "job" else "train-worker-0-"
    assert group.hosts == tuple(f"{prefix}{number}.train" for number in range(8))
    (port,) = container["ports"]
    assert port["containerPort"] == group.port
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    secret = next(v["secret"]["secretName"] for v in pod["volumes"] if v["name"] == "token")
    assert documents["Secret"]["metadata"]["name"] == secret
    assert documents["Secret"]["stringData"] == {"token": "t0ken"}
    mount = next(m for m in container["volumeMounts"] if m["name"] == "token")
    assert group.token_file == f"{mount['mountPath']}/token"
    assert "t0ken" not in str(container)
    if kind == "job":
        service, job = documents["Service"], documents["Job"]
        assert service["metadata"]["name"] == pod["subdomain"] == "train"
        assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "train"}
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert job["spec"]["completions"] == job["spec"]["parallelism"] == 8


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_the_pods_show_your_certificate(kind):
    pod = pod_of(rendered(ENCRYPTED, kind))
    (container,) = pod["containers"]
    plain = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    secrets = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    mounts = {m["name"]: m for m in container["volumeMounts"]}
    assert secrets["tls"] == "own" and mounts["tls"]["readOnly"]
    # The keys that a Secret of the type kubernetes.io/tls has; the options of tfrun.
    where = mounts["tls"]["mountPath"]
    assert plain["TFRUN_TLS_CERT"] == f"{where}/tls.crt"
    assert plain["TFRUN_TLS_KEY"] == f"{where}/tls.key"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    (other,) = pod_of(rendered(SMALL, kind))["containers"]
    assert "scheme" not in other["livenessProbe"]["httpGet"] and "TLS" not in str(other)


def vars_of(what: Deployment) -> dict[str, Any]:
    return {name: getattr(what, name) for name in what.__dataclass_fields__}


def workers(text: str):
    from tfrun.job.spec import WorkerRange

    return WorkerRange.parse(text)


def test_preempted_pods_come_back_and_a_failed_script_ends_the_job():
    spec = rendered(SMALL, "job")["Job"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # a pod failure policy needs it
    first, second, last = spec["podFailurePolicy"]["rules"]
    assert (first["action"], first["onExitCodes"]["values"]) == ("Ignore", [75])
    assert second["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert last["action"] == "FailJob" and last["onExitCodes"]["operator"] == "NotIn"
    assert {74, 75, 137, 143} == set(last["onExitCodes"]["values"])


def test_a_tfjob_is_what_the_operator_looks_for():
    replicas = rendered(SMALL, "tfjob")["TFJob"]["spec"]["tfReplicaSpecs"]
    (container,) = replicas["Worker"]["template"]["spec"]["containers"]
    assert container["name"] == "tensorflow"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports["tfjob-port"] == 2222
    plain = {e["name"]: e["value"] for e in container["env"]}
    for probe in ("startupProbe", "livenessProbe"):
        assert ports[container[probe]["httpGet"]["port"]] == health_port(plain)
    with_ps = Deployment(**{**vars_of(SMALL), "ps": 2})
    replicas = rendered(with_ps, "tfjob")["TFJob"]["spec"]["tfReplicaSpecs"]
    counts = {role: spec["replicas"] for role, spec in replicas.items()}
    assert counts == {"Chief": 1, "Worker": SMALL.pods, "PS": 2}
    (container,) = replicas["PS"]["template"]["spec"]["containers"]
    assert {"name": "TFRUN_CHIEF_AWAY", "value": "900"} in container["env"]
    for change in ({"workers": workers("1:2")}, {"per_pod": 2}, {"tls_secret": "own"}):
        with pytest.raises(UsageError, match="TFRUN-107"):
            manifests(Deployment(**{**vars_of(SMALL), **change}), "tfjob")


@pytest.mark.parametrize(
    "change",
    [
        *({"name": "Train"}, {"name": "a" * 60}, {"name": "1a"}, {"name": "a-"}, {"name": ""}),
        *({"image": ""}, {"image": "a b"}, {"grace": 20}, {"environment": {"a b": "c"}}),
        {"environment": {"TFRUN_GROUP": "x"}},
        *({"image": i} for i in ("Name:1", "i:", "i:a b", "https://r/i:1", "i@sha256:12")),
        *({"cpu": c} for c in ("four", "0", "1.5m", "-1", "4cores", "nan", "1e3")),
        *({"memory": m} for m in ("16GB", "16", "16 Gi", "0Gi", "-1Gi", "500m", "16gi")),
        *({"shm": "2"}, {"storage": "10GiB"}, {"directory": "w"}, {"namespace": "a" * 64}),
        *({"namespace": "My"}, {"claim": "a_b"}, {"secret": "a b"}, {"storage_class": "-a"}),
        {"tls_secret": "a" * 254},
    ],
)
def test_what_kubernetes_would_refuse_is_refused_here(change):
    with pytest.raises(UsageError, match="TFRUN-105"):
        Deployment(**{**vars_of(SMALL), **change})


@pytest.mark.parametrize("kind", KINDS)
def test_a_dollar_arrives_as_it_is_written(kind):
    """Kubernetes expands $(NAME) in arguments and values, and makes one $ of two."""
    written = ["$$", "$(HOSTNAME)", "$$(A)", "$", "a$b", "$((1+1))", "plain"]
    what = Deployment(
        **{**vars_of(SMALL), "command": written, "environment": {"A": "x", "B": "$(A) $$"}}
    )
    (container,) = pod_of(rendered(what, kind))["containers"]

    def expanded(text: str) -> str:  # as k8s.io/kubernetes/third_party/forked/golang/expansion
        known = {"A": "x", "B": "y", "HOSTNAME": "pod"}
        return re.sub(
            r"\$(\$|\((.*?)\))",
            lambda m: "$" if m[1] == "$" else known.get(m[2], m[0]),
            text,
        )

    assert [expanded(arg) for arg in container["args"][-len(written) :]] == written
    values = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    assert expanded(values["B"]) == "$(A) $$"


@pytest.mark.parametrize(
    "change",
    [
        *({"image": i} for i in ("i", "localhost:5000/a/b_c:V1.2", "r.io/i@sha256:" + "0" * 64)),
        *({"cpu": c} for c in ("4", "500m", "0.5")),
        *({"memory": m} for m in ("16Gi", "1.5G", "17179869184", "512Mi")),
        *({"claim": "a.b-c"}, {"storage_class": "0a"}, {"directory": "/"}, {"storage": "1Ti"}),
    ],
)
def test_what_kubernetes_takes_is_taken(change):
    Deployment(**{**vars_of(SMALL), **change})


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["--env", "TFRUN_PS=x"], "TFRUN-105", "'--ps': 'x' is not a valid whole number"),
        (["--env", "TFRUN_HANG_TIMEOUT=nan"], "TFRUN-105", "nan"),
        (["--env", "TFRUN_CHECKPOINT_EVERY=0"], "TFRUN-105", "off"),
        (["--env", "TFRUN_SNAPSHOT_EVERY=often"], "TFRUN-105", "--snapshot-every"),
        (["--env", "TFRUN_JOIN_TIMEOUT=1"], "TFRUN-108", "--join-timeout is 1 s"),
        (["--env", "TFRUN_MAX_STALENESS=3"], "TFRUN-107", "--max-staleness"),
        (["--env", "TFRUN_COMPRESS=bf16", "--ps", "1"], "TFRUN-107", "--compress"),
        (["--env", "TFRUN_EVALUATOR=1", "--kind", "tfjob"], "TFRUN-107", "--evaluator"),
    ],
)
def test_what_the_job_would_refuse_is_refused_here(args, code, told, monkeypatch):
    monkeypatch.setenv("TFRUN_PS", "of no pod")
    done = CliRunner().invoke(render, ["kubernetes", "--image", "i:1", *args, "train.py"])
    assert isinstance(done.exception, UsageError), done.output
    assert done.exception.code == code and told in str(done.exception)


def test_a_misspelt_option_of_the_job_is_named(capfd):
    args = ["--image", "i:1", "--env", "TFRUN_CHEKPOINT_EVERY=5m", "--env", "TFRUN_LOG_ALL=1"]
    done = CliRunner().invoke(render, ["kubernetes", *args, "train.py"])
    assert done.exit_code == 0, done.output
    told = done.output + capfd.readouterr().err
    assert told.count(" has no effect") == 1 and "did you mean TFRUN_CHECKPOINT_EVERY?" in told


def test_your_own_secret_and_claim_are_not_made():
    own = Deployment(**{**vars_of(SMALL), "secret": "mine", "claim": "disk"})
    assert set(rendered(own, "job")) == {"Service", "Job"}


def test_the_command_writes_yaml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ["kubernetes", "-n", "3", "--per-pod", "2", "--image", "i:1", "--env", "A=b"]
    done = CliRunner().invoke(render, [*line, "Not_here.py", "--epochs", "3"])
    assert done.exit_code == 0, done.output
    documents = list(yaml.safe_load_all(done.output))
    assert [d["kind"] for d in documents] == ["Secret", "PersistentVolumeClaim", "Service", "Job"]
    assert documents[-1]["metadata"]["name"] == "not-here"
    assert documents[-1]["spec"]["completions"] == 2
    assert len(documents[0]["stringData"]["token"]) >= 40
    assert not re.search(r"[&*]id\d", done.output)


GROUP = {
    **{"TFRUN_GROUP": "a-[0-1].a", "TFRUN_GROUP_INDEX": "1", "TFRUN_GROUP_PORT": "29401"},
    "TFRUN_GROUP_TOKEN_FILE": "/token",
}


def test_a_group():
    assert group_of({}) is None
    group = group_of(GROUP)
    assert group is not None and group.is_member
    assert (group.agent, group.agents, group.hosts) == ("a-1", ("a-0", "a-1"), ("a-0.a", "a-1.a"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TFRUN_GROUP_INDEX", "2"),
        ("TFRUN_GROUP_INDEX", ""),
        ("TFRUN_GROUP_INDEX", "²"),
        ("TFRUN_GROUP_PORT", "0"),
        ("TFRUN_GROUP_TOKEN_FILE", ""),
        ("TFRUN_GROUP_SLOTS", "x"),
    ],
)
def test_a_group_with_nonsense_is_refused(name, value):
    with pytest.raises(UsageError, match="TFRUN-212"):
        group_of({**GROUP, name: value})
