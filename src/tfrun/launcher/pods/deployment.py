"""Checks what a person asks of Kubernetes before a pod would fail in the queue. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfrun.cluster import pods as group
from tfrun.job.errors import UsageError
from tfrun.job.spec import WorkerRange
from tfrun.job.timeouts import Timeouts

RUN_MOUNT = "/tfrun"
GRACE_MARGIN = 20  # seconds of the grace period that are not for saving: the notice, and leaving
LEAST_GRACE = int(Timeouts.preempt_grace) + GRACE_MARGIN
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_EXPECTED = "a to z, 0 to 9, - and ., beginning and ending with a letter or a digit"
_CPU = re.compile(r"(?=.*[1-9])\d+(\.\d{1,3})?|[1-9]\d*m", re.ASCII)
# A size without a unit is bytes: 16 is a slip, 17179869184 is not.
_SIZE = re.compile(r"(?=.*[1-9])\d+(\.\d+)?([MGTPE]i?)|[1-9]\d*(k|Ki)|[1-9]\d{6,}", re.ASCII)
# As the registry's reference grammar has it: host:port/path:tag@digest.
_IMAGE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9.-]*(:\d+)?/|\[[0-9a-fA-F:]+\](:\d+)?/)?"
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@[A-Za-z][\w+.-]*:[0-9a-fA-F]{32,})?",
    re.ASCII,
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_LABEL, MAX_NAME = 63, 253


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What a person asks of Kubernetes.

    Attributes:
      name: of everything that is made.
      image: the container image, which has tfrun, TensorFlow and the script.
      command: the script with its arguments, as after `tfrun`'s own options.
      workers: how many workers.
      per_pod: workers of each pod.
      ps: parameter servers.
      gpus: GPUs of each pod.
      cpu, memory: of each pod, as Kubernetes writes them; "" for no request.
      shm: size of /dev/shm.
      namespace: "" for that of kubectl.
      claim: a claim for the shared run directory; "" to make one.
      storage, storage_class: of the claim that is made.
      secret: a secret with the key "token"; "" to make one.
      token: the secret's content.
      tls_secret: a secret of the type kubernetes.io/tls; "" is without TLS.
      environment: variables of the containers.
      directory: their working directory; "" for the image's.
      grace: seconds between SIGTERM and SIGKILL.
    """

    name: str
    image: str
    command: Sequence[str]
    workers: WorkerRange = field(default_factory=WorkerRange)
    per_pod: int = 1
    ps: int = 0
    gpus: int = 0
    cpu: str = ""
    memory: str = ""
    shm: str = "2Gi"
    namespace: str = ""
    claim: str = ""
    storage: str = "10Gi"
    storage_class: str = ""
    secret: str = ""
    token: str = ""
    tls_secret: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    grace: int = 90

    def __post_init__(self) -> None:
        longest = f"{self.name}-worker-0-{self.pods - 1}"
        if not _NAME.fullmatch(self.name) or len(longest) > MAX_LABEL:
            raise _refuse(
                f"{self.name!r:.80} cannot name pods",
                "--name",
                f"a to z, 0 to 9 and -, beginning with a letter, {longest!r:.80} not over "
                f"{MAX_LABEL} characters",
            )
        if not _IMAGE.fullmatch(self.image):
            expected = "registry/name:tag, the name in small letters"
            raise _refuse(f"{self.image!r:.80} is not an image", "--image", expected)
        if self.directory and not self.directory.startswith("/"):
            what = f"{self.directory!r:.80} does not say where in the image"
            raise _refuse(what, "--workdir", "a path that begins with /")
        if self.cpu and not _CPU.fullmatch(self.cpu):
            raise _refuse(
                f"{self.cpu!r:.80} is not a number of cores", "--cpu", "such as 4 or 500m"
            )
        sizes = {"--memory": self.memory, "--shm": self.shm, "--storage": self.storage}
        for option, size in sizes.items():
            if size and not _SIZE.fullmatch(size):
                raise _refuse(f"{size!r:.80} is not a size", option, "such as 16Gi or 500M")
        if len(self.namespace) > MAX_LABEL:
            raise _refuse(
                f"{self.namespace!r:.80} is too long", "--namespace", f"{MAX_LABEL} characters"
            )
        names = {"--namespace": self.namespace, "--claim": self.claim, "--secret": self.secret}
        names |= {"--storage-class": self.storage_class, "--tls-secret": self.tls_secret}
        for option, name in names.items():
            if name and (len(name) > MAX_NAME or not _OBJECT.fullmatch(name)):
                raise _refuse(f"{name!r:.80} cannot be a name in Kubernetes", option, _EXPECTED)
        if self.grace < LEAST_GRACE:
            what = f"{self.grace} s leave no time to save"
            raise _refuse(what, "--grace", f"at least {LEAST_GRACE}")
        for name in self.environment:
            if not _VARIABLE.fullmatch(name) or name.startswith(group.HOSTS):
                raise _refuse(f"{name!r:.80} is not a variable's name", "--env", "NAME=VALUE")

    @property
    def arguments(self) -> list[str]:
        """Of the command `tfrun` in each pod."""
        options = ["--run-dir", f"{RUN_MOUNT}/{self.name}", "-n", str(self.workers)]
        options += ["--grace", str(self.grace - GRACE_MARGIN)]
        options += ["--ps", str(self.ps)] if self.ps else []
        return [*options, *self.command]

    @property
    def pods(self) -> int:
        return -(-self.workers.high // self.per_pod)


def _refuse(what: str, where: str, expected: str) -> UsageError:
    return UsageError("TFRUN-105", what, where=where, expected=expected)
