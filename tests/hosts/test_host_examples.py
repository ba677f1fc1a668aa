"""The examples for clusters: the batch script in a real Slurm, the manifest's pods on hosts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import NET, TFRUN
from machines import Hosts, needs_hosts
from slurm_lab import slurm_on_hosts, why_not
from test_pod_command import HEALTH

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
EXAMPLES = Path(__file__).parents[2] / "examples"
JOB_SECONDS = 150
NO_SLURM = why_not()
PODS = 2
# The annotation that the Job's controller gives each pod, and its address.
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
ADDRESS = "status.podIP"


def accuracy(said: str) -> float:
    (found,) = re.findall(r"validation accuracy ([\d.]+)", said)
    return float(found)


@pytest.mark.skipif(bool(NO_SLURM), reason=f"no Slurm to test with: {NO_SLURM}")
@pytest.mark.timeout(300)
def test_the_batch_script_trains_on_two_nodes(tmp_path: Path) -> None:
    with slurm_on_hosts(tmp_path, 2) as slurm:
        shutil.copytree(EXAMPLES, slurm.work / "examples")
        # Where the script has its own lines for that.
        slurm.environment["PATH"] = f"{Path(TFRUN).parent}:{slurm.environment['PATH']}"
        # It ends with the job, and with its exit code.
        submit = ("sbatch", "--wait", "--parsable", "examples/slurm.sh")
        (job,) = slurm.call(*submit, seconds=JOB_SECONDS).split()
        said = (slurm.work / f"digits-{job}.log").read_text()
        assert "digits · 2 workers" in said and accuracy(said) > 0.9, said


class Volumes:
    """What the paths of a container are on a host: its volumes, and the image's directory."""

    def __init__(self, hosts: Hosts, job: dict[str, Any]) -> None:
        (self.container,) = job["spec"]["template"]["spec"]["containers"]
        self._places = {
            mount["mountPath"]: hosts.directory / mount["name"]
            for mount in self.container["volumeMounts"]
            if mount["name"] != "shm"  # each machine has one there
        }
        self._places[self.container["workingDir"]] = hosts.directory / "image"
        for place in self._places.values():
            place.mkdir()

    def here(self, text: str) -> str:
        """A path of the container, or another word as it is."""
        for path, place in self._places.items():
            if text == path or text.startswith(f"{path}/"):
                return f"{place}{text.removeprefix(path)}"
        return text

    def environment(self, index: int) -> dict[str, str]:
        """The variables of one pod."""
        fields = {INDEX: str(index), ADDRESS: f"{NET}.{index + 1}"}
        return {
            variable["name"]: self.here(variable["value"])
            if "value" in variable
            else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for variable in self.container["env"]
        }


@needs_hosts
@pytest.mark.timeout(300)
def test_the_manifests_pods_train_and_answer_their_probes(hosts: Hosts) -> None:
    """What a cluster does besides is in test_pods.py, and in the schemas of the unit tests."""
    documents = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    found = {document["kind"]: document for document in documents}
    job, service = found["Job"], found["Service"]["metadata"]["name"]
    assert job["spec"]["completions"] == PODS
    volumes = Volumes(hosts, job)
    container = volumes.container
    shutil.copy(EXAMPLES / "digits.py", volumes.here(container["workingDir"]))
    (hosts.directory / "token" / "token").write_text("t0ken")
    name = job["metadata"]["name"]
    with (hosts.lab.directory / "hosts").open("a") as file:  # the headless Service's names
        for index in range(PODS):
            file.write(f"{NET}.{index + 1} {name}-{index}.{service}\n")

    path = f"{Path(TFRUN).parent}:{os.environ['PATH']}"
    command = [shutil.which(container["command"][0], path=path) or "", *container["args"]]
    running: list[subprocess.Popen] = []
    said = [hosts.directory / f"said-{index}" for index in range(PODS)]
    try:
        for index in range(PODS):
            environment = {**hosts.environment, **volumes.environment(index), "PATH": path}
            words, where = [volumes.here(word) for word in command], container["workingDir"]
            with said[index].open("wb") as out:
                running.append(
                    hosts.lab.start(
                        f"n{index + 1}", words, Path(volumes.here(where)), environment, out, out
                    )
                )
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[kind]["httpGet"]
            for index in range(PODS):
                url = f"http://n{index + 1}:{ports[asked['port']]}{asked['path']}"
                wait_until(lambda url=url: is_healthy(hosts, url), f"{url} answers", 60)
        codes = [process.wait(JOB_SECONDS) for process in running]
        assert codes == [0, 0], [path.read_text() for path in said]
    finally:
        for process in running:
            hosts.kill(process)
    assert accuracy(said[0].read_text()) > 0.9, said[0].read_text()
    assert (hosts.directory / "run" / name / "events.jsonl").exists()


def is_healthy(hosts: Hosts, url: str) -> bool:
    """Probes a pod from the third host, as a kubelet does from outside."""
    with open(os.devnull, "wb") as out:  # noqa: PTH123
        asking = hosts.lab.start(
            *("n3", [sys.executable, "-c", HEALTH, url], hosts.directory),
            *(hosts.environment, out, out),
        )
    return asking.wait(20) == 0
