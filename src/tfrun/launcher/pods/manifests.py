"""Kubernetes manifests of a job: its pods, and how they find each other.

Pure: from a `Deployment` to manifests as plain dictionaries, of which `tfrun render kubernetes`
makes YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrun.cluster import pods
from tfrun.job.errors import UsageError
from tfrun.job.settings import CHIEF_AWAY
from tfrun.launcher.pods.deployment import RUN_MOUNT, Deployment

KINDS = ("job", "jobset", "tfjob")
CONTROL_PORT = 29401
TOKEN_DIR = "/var/run/secrets/tfrun"
TLS_DIR = "/var/run/secrets/tfrun-tls"
TLS_FILES = {"TFRUN_TLS_CERT": "tls.crt", "TFRUN_TLS_KEY": "tls.key"}  # kubernetes.io/tls
INDEX_FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
TFJOB_PORT = 2222  # the training operator writes it into TF_CONFIG
TFJOB_AWAY = 900  # seconds; its back-off between two starts of a container ends at 300

Manifest = dict[str, Any]


def manifests(what: Deployment, kind: str) -> list[Manifest]:
    """Returns what to apply, in its order.

    Args:
      what: what runs where.
      kind: "job" (an Indexed Job with a headless Service), "jobset" or "tfjob".

    Raises:
      UsageError: TFRUN-107 for what the kind cannot do.
    """
    assert kind in KINDS, kind
    secret = {"type": "Opaque", "stringData": {"token": what.token}}
    own = _object(what, "v1", "Secret", suffix="-token", **secret)
    return [
        *([] if what.secret or kind == "tfjob" else [own]),
        *([] if what.claim else [_claim(what)]),
        *{"job": _job, "jobset": _jobset, "tfjob": _tfjob}[kind](what),
    ]


def _object(what: Deployment, api: str, kind: str, *, suffix: str = "", **of: Any) -> Manifest:
    """Returns an object of the cluster, which is called as the deployment and a suffix."""
    place = {"namespace": what.namespace} if what.namespace else {}
    meta = {"name": f"{what.name}{suffix}", **place, "labels": _labels(what)}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **of}


def _labels(what: Deployment) -> dict[str, str]:
    return {"app.kubernetes.io/name": what.name, "app.kubernetes.io/managed-by": "tfrun"}


def _claim(what: Deployment) -> Manifest:
    chosen = {"storageClassName": what.storage_class} if what.storage_class else {}
    spec = {
        # All pods write there: logs, checkpoints.
        "accessModes": ["ReadWriteMany"],
        **chosen,
        "resources": {"requests": {"storage": what.storage}},
    }
    return _object(what, "v1", "PersistentVolumeClaim", suffix="-run", spec=spec)


def _job(what: Deployment) -> list[Manifest]:
    service = {
        "clusterIP": "None",
        "selector": {"batch.kubernetes.io/job-name": what.name},
        # The pods look for each other before they are ready.
        "publishNotReadyAddresses": True,
        "ports": [{"name": "control", "port": CONTROL_PORT, "targetPort": "control"}],
    }
    job = _job_spec(what, f"{what.name}-", subdomain=what.name)
    return [
        _object(what, "v1", "Service", spec=service),
        _object(what, "batch/v1", "Job", spec=job),
    ]


def _jobset(what: Deployment) -> list[Manifest]:
    workers = {"spec": _job_spec(what, f"{what.name}-worker-0-")}
    spec = {
        # It makes the headless Service itself.
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            "subdomain": what.name,
        },
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [{"name": "worker", "replicas": 1, "template": workers}],
    }
    return [_object(what, "jobset.x-k8s.io/v1alpha2", "JobSet", spec=spec)]


def _job_spec(what: Deployment, prefix: str, subdomain: str = "") -> Manifest:
    """Returns the Indexed Job: pod i is `<prefix>i.<name>`, for ever, whoever is restarted."""
    return {
        "completionMode": "Indexed",
        "completions": what.pods,
        "parallelism": what.pods,
        # Pods of machines that have died: each may be replaced a few times.
        "backoffLimit": max(6, 3 * what.pods),
        "podFailurePolicy": {
            "rules": [
                # Preempted: saved, and to go on.
                {
                    "action": "Ignore",
                    "onExitCodes": {"containerName": "tfrun", "operator": "In", "values": [75]},
                },
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
                # The script has failed, and tfrun has tried again already. 74: a pod that has lost
                # the launcher; 137 and 143: killed.
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": "tfrun",
                        "operator": "NotIn",
                        "values": [74, 75, 137, 143],
                    },
                },
            ]
        },
        "template": {
            "metadata": {"labels": _labels(what)},
            "spec": {**({"subdomain": subdomain} if subdomain else {}), **_pod(what, prefix)},
        },
    }


def _pod(what: Deployment, prefix: str) -> Manifest:
    hosts = f"{prefix}[0-{what.pods - 1}].{what.name}"
    variables = {
        pods.HOSTS: hosts,
        pods.PORT: str(CONTROL_PORT),
        pods.TOKEN_FILE: f"{TOKEN_DIR}/token",
        pods.SLOTS: str(what.per_pod),
    }
    fields = {pods.INDEX: INDEX_FIELD, pods.ADDRESS: "status.podIP"}
    container = _container(what)
    container["env"] += _variables(variables)
    container["env"] += [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
    asked = _asked("control", "HTTPS" if what.tls_secret else "HTTP")
    container["ports"] = [{"name": "control", "containerPort": CONTROL_PORT}]
    container |= _lives(asked)
    container["readinessProbe"] = {**asked, "periodSeconds": 10}
    secrets = {"token": (what.secret or f"{what.name}-token", TOKEN_DIR)}
    if what.tls_secret:
        secrets["tls"] = (what.tls_secret, TLS_DIR)
        files = {name: f"{TLS_DIR}/{file}" for name, file in TLS_FILES.items()}
        container["env"] += _variables(files)
    container["volumeMounts"] += [
        {"name": name, "mountPath": path, "readOnly": True} for name, (_, path) in secrets.items()
    ]
    mounted = [
        {"name": name, "secret": {"secretName": secret}} for name, (secret, _) in secrets.items()
    ]
    return {
        # Their variables, TFRUN_PORT of a service "tfrun", would be options.
        "enableServiceLinks": False,
        "restartPolicy": "Never",  # another pod comes, perhaps on another machine
        "terminationGracePeriodSeconds": what.grace,
        "containers": [container],
        "volumes": [*_volumes(what), *mounted],
    }


def _lives(asked: Manifest) -> Manifest:
    """Returns the probes that have a container ended which does not answer any more."""
    return {
        "startupProbe": {**asked, "periodSeconds": 2, "failureThreshold": 60},
        "livenessProbe": {**asked, "periodSeconds": 10, "failureThreshold": 6},
    }


def _asked(port: str, scheme: str = "HTTP") -> Manifest:
    secure = {} if scheme == "HTTP" else {"scheme": scheme}  # whose certificate it is, nobody asks
    return {"httpGet": {"path": "/healthz", "port": port, **secure}, "timeoutSeconds": 5}


def _container(what: Deployment) -> Manifest:
    limits = {"nvidia.com/gpu": str(what.gpus)} if what.gpus else {}
    asked = {"cpu": what.cpu, "memory": what.memory}
    requests = {name: value for name, value in asked.items() if value}
    if what.memory:
        limits["memory"] = what.memory
    resources = {"requests": requests, "limits": limits}
    return {
        "name": "tfrun",
        "image": what.image,
        "command": ["tfrun"],
        "args": [_literal(word) for word in what.arguments],
        **({"workingDir": what.directory} if what.directory else {}),
        "env": _variables({k: _literal(v) for k, v in what.environment.items()}),
        "resources": {name: value for name, value in resources.items() if value},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": "run", "mountPath": RUN_MOUNT},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }


def _variables(values: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _literal(text: str) -> str:
    """Returns what arrives as `text`: Kubernetes replaces $(NAME), and makes $ of $$."""
    return text.replace("$", "$$")


def _volumes(what: Deployment) -> list[Manifest]:
    claim = what.claim or f"{what.name}-run"
    return [
        {"name": "run", "persistentVolumeClaim": {"claimName": claim}},
        # Snapshots; a container has 64 MB of shared memory otherwise.
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": what.shm}},
    ]


def _tfjob(what: Deployment) -> list[Manifest]:
    """The training operator gives each pod a TF_CONFIG, and tfrun runs that pod's one task."""
    elastic = what.workers.low < what.workers.high
    for option, wrong in (
        ("-n MIN:MAX", elastic),
        ("--per-pod", what.per_pod > 1),
        ("--tls-secret", bool(what.tls_secret)),  # its pods tell each other nothing
    ):
        if wrong:
            fix = "Take --kind job or jobset"
            raise UsageError("TFRUN-107", f"{option} and --kind tfjob do not go together", fix=fix)
    roles = {"Worker": what.pods}
    if what.ps:
        roles = {"Chief": 1, **roles, "PS": what.ps}
    container = {**_container(what), "name": "tensorflow"}  # the operator looks for this name
    ports = {"tfjob-port": TFJOB_PORT, "health": CONTROL_PORT}
    container["ports"] = [{"name": name, "containerPort": port} for name, port in ports.items()]
    variables = {pods.HEALTH_PORT: str(CONTROL_PORT)}
    # No readiness: the operator's Services may name only pods that are ready, and the pods look
    # for each other before.
    container |= _lives(_asked("health"))
    if what.ps:
        # The operator starts a chief that has failed again, and removes the servers of one that has
        # not: they wait.
        variables[CHIEF_AWAY] = str(TFJOB_AWAY)
    container["env"] += _variables(variables)
    template = {
        "metadata": {"labels": _labels(what)},
        "spec": {
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": what.grace,
            "containers": [container],
            "volumes": _volumes(what),
        },
    }
    spec = {
        "runPolicy": {"backoffLimit": 3 * what.pods, "cleanPodPolicy": "Running"},
        "tfReplicaSpecs": {
            role: {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}
            for role, replicas in roles.items()
        },
    }
    return [_object(what, "kubeflow.org/v1", "TFJob", spec=spec)]
