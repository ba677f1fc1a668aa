"""podman and runc on the hosts of a lab run what `tfrun render kubernetes` has written.

This takes the part of a cluster: the API server's defaults, the Job controller that makes a pod for
each index, the DNS of the headless Service, the shared volume, and the kubelet that knows a pod's
address. The pods share the network of their host. There is no registry: the image is an empty tree
with the script, and this machine's programs and Python are mounted into it.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lab as hosts
import yaml
from lab import NET, TFRUN, Lab

IMAGE = "localhost/tfrun-test:1"
NAME = "t"
INDEX = "batch.kubernetes.io/job-completion-index"
SECONDS = 60
# In a sandbox even root may not raise a limit, and podman always wants to.
RUNTIME = """#!{python}
import json, os, sys
words = sys.argv[1:]
if "create" in words:
    path = os.path.join(words[words.index("--bundle") + 1], "config.json")
    with open(path) as file:
        config = json.load(file)
    config["process"].pop("rlimits", None)
    with open(path, "w") as file:
        json.dump(config, file)
os.execv({runc!r}, ["runc", *words])
"""
CONFIG = """
[containers]
volumes = {volumes}
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
[engine.runtimes]
runc = ["{runtime}"]
"""


def why_not() -> str:
    """Returns why no pods can run on this machine; "" when they can."""
    if reason := hosts.why_not():
        return reason
    tools = ("podman", "runc", "conmon", "catatonit")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [tool for tool in tools if not shutil.which(tool, path=path)]
    return f"not installed: {', '.join(missing)}" if missing else ""


def _mounts() -> list[str]:
    """The directories that make up this machine's programs and Python."""
    found = {Path(name) for name in ("/usr", "/bin", "/lib", "/lib64")}
    found |= {Path(sys.prefix), Path(sys.base_prefix), *(Path(entry) for entry in sys.path)}
    found = {path for path in found if path.is_dir() and path != Path("/")}
    return sorted(str(p) for p in found if not any(other in p.parents for other in found))


class Podman:
    """Pods of one Job on the hosts n1, n2, …, one on each."""

    def __init__(self, lab: Lab, directory: Path, script: str) -> None:
        """Args:
        lab: the hosts, up.
        directory: an empty one, for all files; the shared volume is "shared" in it.
        script: the text of train.py in the image.
        """
        self._lab, self._directory = lab, directory
        self.shared = directory / "shared"
        self.shared.mkdir()
        runtime = directory / "runtime"
        found = shutil.which("runc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        runtime.write_text(RUNTIME.format(python=sys.executable, runc=found))
        runtime.chmod(0o755)
        volumes = json.dumps([f"{path}:{path}:ro" for path in _mounts()])
        config = CONFIG.format(volumes=volumes, runtime=runtime)
        (directory / "containers.conf").write_text(config)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TFRUN_")},
            "CONTAINERS_CONF": str(directory / "containers.conf"),
            "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin",
        }
        tree = directory / "image"
        for name in ("etc", "proc", "dev", "sys", "tmp", "run", "root", "work"):
            (tree / name).mkdir(parents=True)
        (tree / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
        (tree / "work" / "train.py").write_text(script)
        tar = directory / "image.tar"
        subprocess.run(["tar", "-C", tree, "-cf", tar, "."], check=True, timeout=SECONDS)
        for name in lab.names:
            path = f"ENV PATH={Path(TFRUN).parent}:/usr/bin:/bin"
            self.call(name, "import", "--change", path, str(tar), IMAGE)
            bind = ("--opt", "type=none", "--opt", "o=bind", "--opt", f"device={self.shared}")
            self.call(name, "volume", "create", *bind, f"{NAME}-run")

    def render(self, *options: str) -> None:
        """Lets tfrun write the manifests that are to be applied."""
        command = [TFRUN, "render", "kubernetes", "--name", NAME, "--image", IMAGE]
        command += ["-n", str(len(self._lab.names)), "--workdir", "/work", *options, "train.py"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=True, cwd=self.shared
        )
        self._documents = {d["kind"]: d for d in yaml.safe_load_all(done.stdout)}
        subdomain = self._documents["Service"]["metadata"]["name"]
        with (self._lab.directory / "hosts").open("a") as file:  # what all pods have
            for number in range(1, len(self._lab.names) + 1):
                file.write(f"{NET}.{number} {NAME}-{number - 1}.{subdomain}\n")

    def apply(self) -> None:
        """Starts the pods."""
        secret = copy.deepcopy(self._documents["Secret"])
        plain = secret.pop("stringData")
        secret["data"] = {k: base64.b64encode(v.encode()).decode() for k, v in plain.items()}
        for index, name in enumerate(self._lab.names):
            path = self._directory / f"pod-{index}.yaml"
            path.write_text(yaml.safe_dump_all([secret, self.pod(index)]))
            self.call(name, "kube", "play", "--network", "host", str(path))

    def pod(self, index: int) -> dict[str, Any]:
        """Returns a pod as it is when its container is started."""
        template = copy.deepcopy(self._documents["Job"]["spec"]["template"])
        template["metadata"] |= {"name": f"{NAME}-{index}", "annotations": {INDEX: str(index)}}
        spec = template["spec"]
        (container,) = spec["containers"]
        ports = {port["name"]: port["containerPort"] for port in container.pop("ports")}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            get = container[probe]["httpGet"]
            get["port"] = ports[get["port"]]
        for variable in container["env"]:
            field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if field == "status.podIP":
                variable.pop("valueFrom")
                variable["value"] = f"{NET}.{index + 1}"
        for volume in spec["volumes"]:
            if "secret" in volume:
                volume["secret"]["optional"] = False
        return {"apiVersion": "v1", "kind": "Pod", **template}

    def until_said(self, text: str, seconds: float) -> None:
        """Waits until the first pod has said something."""
        deadline = time.monotonic() + seconds
        while text not in self.said(0):
            running = [self._is_running(index) for index in range(len(self._lab.names))]
            late = time.monotonic() > deadline
            assert not late and all(running), (running, self.said(0), self.said(1))
            time.sleep(0.2)

    def _is_running(self, index: int) -> bool:
        format = ("--format", "{{.State.Running}}")
        name = f"{NAME}-{index}-tfrun"
        return self.call(f"n{index + 1}", "container", "inspect", *format, name).strip() == "true"

    def said(self, index: int) -> str:
        return self.call(f"n{index + 1}", "logs", f"{NAME}-{index}-tfrun")

    def inside(self, index: int, *command: str) -> str:
        """Returns what a command in the container prints."""
        return self.call(f"n{index + 1}", "exec", f"{NAME}-{index}-tfrun", *command)

    def is_healthy(self, index: int) -> bool:
        """Probes a pod once, as the kubelet does."""
        said = self.call(f"n{index + 1}", "healthcheck", "run", f"{NAME}-{index}-tfrun", fails=True)
        return not said

    def terminate(self) -> None:
        """Sends SIGTERM to all pods, as for a drained node."""
        for index, name in enumerate(self._lab.names):
            self.call(name, "kill", "--signal", "TERM", f"{NAME}-{index}-tfrun")

    def codes(self, seconds: float) -> list[int]:
        """Waits until all containers have ended; returns their exit codes."""
        return [
            int(self.call(name, "wait", f"{NAME}-{index}-tfrun", seconds=seconds))
            for index, name in enumerate(self._lab.names)
        ]

    def delete(self) -> None:
        """Takes away the pods and the Secret."""
        for name in self._lab.names:
            self.call(name, "pod", "rm", "--force", "--all", "--time", "1")
            self.call(name, "secret", "rm", "--all")
        # podman leaves its groups of processes behind; those of pods that run refuse to go.
        for group in sorted(Path("/sys/fs/cgroup").glob("*/libpod_parent/**"), reverse=True):
            with contextlib.suppress(OSError):
                group.rmdir()

    def call(self, name: str, *words: str, fails: bool = False, seconds: float = SECONDS) -> str:
        """Returns what `podman words…` prints on a host."""
        store = self._directory / f"store-{name}"
        where = ["--root", str(store), "--runroot", f"/run/{NAME}", "--storage-driver", "vfs"]
        command = ["podman", *where, *words]
        cwd, env = self._directory, self.environment
        return self._lab.call(name, command, cwd, env, fails=fails, seconds=seconds)
