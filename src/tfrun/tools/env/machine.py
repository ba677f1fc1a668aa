"""What this machine is, and what of its environment bears on a job."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tfrun.cluster.ports import PortReservation
from tfrun.job.errors import TfrunError
from tfrun.process.python import usable_cores
from tfrun.tools import nvidia

# Variables that change what TensorFlow, Keras, tfrun and the packages for object storage do.
_TOLD = re.compile(
    r"(TFRUN|TF|KERAS|XLA|CUDA|CUDNN|NVIDIA|NCCL|GRPC|OMP|KMP|MKL|OPENBLAS|LD|MALLOC)_.*"
    r"|PYTHON.*|(HTTPS?|NO|ALL)_PROXY|VIRTUAL_ENV|CONDA_PREFIX|TMPDIR"
    r"|AWS_((DEFAULT_)?(REGION|PROFILE)|ENDPOINT_URL.*|ACCESS_KEY_ID|CA_BUNDLE|CONFIG_FILE)"
    r"|FSSPEC_.*|GOOGLE_(APPLICATION_CREDENTIALS|CLOUD_PROJECT)|STORAGE_EMULATOR_HOST",
    re.IGNORECASE,
)
# "KEY" as a word of its own: KERAS_… and MONKEY… are none.
_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|PRIVATE|SIGNATURE|(^|_)(API|ACCESS)?KEY(_|S?$)", re.I
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_IN_JSON = re.compile(r'("[^"]*(?:token|secret|passw|key)[^"]*"\s*:\s*)"[^"]*"', re.I)
HIDDEN = "(hidden)"
LONGEST = 300
# What these say where they are set: the name of the scheduler, and what tells of this job.
SCHEDULERS = {
    "Slurm": ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURMD_NODENAME"),
    "Kubernetes": ("KUBERNETES_SERVICE_HOST", "TFRUN_GROUP", "TFRUN_GROUP_INDEX"),
}
_PROGRAMS = {"Slurm": "sbatch", "Kubernetes": "kubectl"}
_CONTAINERS = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}
_FLAGS = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd")


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns those that bear on a job, by name; what looks like a secret is hidden."""
    return {
        name: _shown(name, value)
        for name, value in sorted(environment.items())
        if _TOLD.fullmatch(name)
    }


def _shown(name: str, value: str) -> str:
    if value and _SECRET.search(name):
        return HIDDEN
    value = _IN_JSON.sub(rf'\1"{HIDDEN}"', _IN_ADDRESS.sub(HIDDEN, value))
    return value if len(value) <= LONGEST else f"{value[:LONGEST]}… ({len(value)} characters)"


def schedulers(environment: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns what is set by each scheduler that this process runs under, or could ask."""
    found: dict[str, dict[str, str]] = {}
    for name, told in SCHEDULERS.items():
        values = {variable: environment[variable] for variable in told if variable in environment}
        if program := shutil.which(_PROGRAMS[name], path=environment.get("PATH", "")):
            values["command"] = program
        if values:
            found[name] = values
    return found


def facts() -> dict[str, Any]:
    """Returns system, processor, memory and limits; sizes are in bytes."""
    memory = psutil.virtual_memory()
    return {
        "system": _system(),
        "container": next((kind for path, kind in _CONTAINERS.items() if _there(path)), None),
        "processor": _processor(),
        "cores": {"usable": usable_cores(), "all": os.cpu_count() or 1},
        "load": os.getloadavg()[0],
        "memory": {"total": memory.total, "free": memory.available, "limit": _memory_limit()},
        "gpus": nvidia.gpus(),
        "disks": {
            what: space for what, where in _places().items() if (space := _space(where)) is not None
        },
        "limits": {
            "open files": _limit(resource.RLIMIT_NOFILE),
            "processes": _limit(resource.RLIMIT_NPROC),
        },
        "ports": _ports(),
    }


def _system() -> dict[str, str]:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = f"macOS {mac}" if (mac := platform.mac_ver()[0]) else ""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    return {"name": name, "kernel": kernel, "libc": " ".join(platform.libc_ver()).strip()}


def _processor() -> dict[str, Any]:
    """Its "name", and which of the instructions that TensorFlow's builds differ in it has."""
    text = ""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.M)
    has = flags[1].split() if flags else []
    return {
        "name": name[1] if name else platform.processor() or platform.machine(),
        "instructions": [flag for flag in _FLAGS if flag in has],
    }


def _memory_limit() -> int | None:
    """What a container, or a job of a scheduler, may use at most; None without such a limit."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = int(Path(path).read_text())
        except (OSError, ValueError):  # "max"
            continue
        return limit if limit < psutil.virtual_memory().total else None
    return None


def _places() -> dict[str, str]:
    where = {"shared memory": "/dev/shm", "temporary": tempfile.gettempdir()}
    try:
        return {**where, "working directory": str(Path.cwd())}
    except OSError:  # it was removed
        return where


def _space(where: str) -> dict[str, Any] | None:
    try:
        usage = shutil.disk_usage(where)
    except OSError:
        return None
    return {"path": where, "total": usage.total, "free": usage.free}


def _limit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _ports() -> dict[str, Any]:
    """The "range" that free ports come from, None where unknown; whether one can be "reserved"."""
    span: list[int] | None = None
    with contextlib.suppress(OSError, ValueError):
        span = [*map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())]
    try:
        with PortReservation(1):
            return {"range": span, "reserved": True}
    except TfrunError:
        return {"range": span, "reserved": False}


def _there(path: str) -> bool:
    return Path(path).exists()
