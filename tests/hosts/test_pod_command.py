"""The command of the pods of `tfrun render kubernetes`, on hosts instead of pods."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from lab import TFRUN, certificate
from machines import Hosts, needs_hosts, thorough

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
pytestmark = [needs_hosts, thorough]

FIT = """
import os, time
import keras, numpy as np, tfrun
class Told(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, flush=True)
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(float(os.environ["PAUSE"]))
x = np.random.default_rng(0).normal(size=(96, 4)).astype("float32")
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(x, x.sum(axis=1), batch_size=24, epochs=10, verbose=0, callbacks=[Told()])
print("trained", flush=True)
"""
# As a kubelet does, which does not look whose certificate it is.
HEALTH = """
import ssl, sys, urllib.request
context = ssl._create_unverified_context()
sys.exit(urllib.request.urlopen(sys.argv[1], timeout=5, context=context).status != 200)
"""
PORT = 29401


class Pods:
    """Two hosts that each run the pods' command."""

    def __init__(self, hosts: Hosts, pause: str, tls: dict[str, str] | None = None) -> None:
        """Args:
        hosts: the lab.
        pause: seconds of each step.
        tls: the variables that name a certificate.
        """
        self._scheme = "https" if tls else "http"
        self._hosts, self.directory = hosts, hosts.directory
        (self.directory / "train.py").write_text(FIT)
        (self.directory / "token").write_text("t0ken\n")
        command = [TFRUN, "--run-dir", "run", "-n", "2", "train.py"]
        self.processes: list[subprocess.Popen] = []
        for index, name in enumerate(("n1", "n2")):
            environment = {
                **hosts.environment,
                **(tls or {}),
                **{"TFRUN_GROUP": "n[1-2]", "TFRUN_GROUP_PORT": str(PORT)},
                **{"TFRUN_GROUP_INDEX": str(index), "PAUSE": pause},
                "TFRUN_GROUP_TOKEN_FILE": str(self.directory / "token"),
                "TFRUN_GROUP_ADDRESS": f"10.66.0.{index + 1}",
            }
            with self.said_file(index).open("wb") as out:
                self.processes.append(
                    hosts.lab.start(name, command, self.directory, environment, out, out)
                )

    def said_file(self, index: int) -> Path:
        return self.directory / f"said-{index}"

    def said(self, index: int) -> str:
        return self.said_file(index).read_text()

    def until_said(self, text: str) -> None:
        wait_until(lambda: text in self.said(0), f"{text!r} is said: {self.said(0)}", 120)

    def codes(self) -> list[int]:
        return [process.wait(60) for process in self.processes]

    def is_healthy(self, name: str) -> bool:
        """Asks from the third host, as a node's kubelet does from outside."""
        url = f"{self._scheme}://{name}:{PORT}/healthz"
        with open(os.devnull, "wb") as out:  # noqa: PTH123
            asking = self._hosts.lab.start(
                *("n3", [sys.executable, "-c", HEALTH, url], self.directory),
                *(self._hosts.environment, out, out),
            )
        return asking.wait(20) == 0


def test_pods_train_are_preempted_and_go_on(hosts: Hosts) -> None:
    cert, key = certificate(hosts.directory, "10.99.0.1")  # for none of the hosts
    tls = {"TFRUN_TLS_CERT": cert, "TFRUN_TLS_KEY": key}
    with hosts.lab.wiretap() as heard:
        _preempted_and_going_on(hosts, tls)
        assert not heard(b"Authorization: Bearer") and not heard(b"t0ken")


def _preempted_and_going_on(hosts: Hosts, tls: dict[str, str]) -> None:
    first = Pods(hosts, "0.2", tls)
    for name in ("n1", "n2"):
        wait_until(lambda name=name: first.is_healthy(name), f"{name} answers", 30)
    first.until_said("epoch 2")
    for index, process in enumerate(first.processes):
        assert process.poll() is None, first.said(index)
        os.kill(hosts.lab.pid_of(process), signal.SIGTERM)
    assert first.codes() == [75, 75], (first.said(0), first.said(1))
    second = Pods(hosts, "0", tls)
    assert second.codes() == [0, 0], (second.said(0), second.said(1))
    assert "epoch 0" not in second.said(0)
    assert "trained" in second.said(0)


def test_a_pod_that_has_lost_its_launcher_wants_to_be_started_again(hosts: Hosts) -> None:
    with hosts.lab.wiretap() as heard:
        pods = Pods(hosts, "0.2")
        pods.until_said("epoch 1")
        assert heard(b"Authorization: Bearer t0ken")  # without TLS
    os.kill(hosts.lab.pid_of(pods.processes[0]), signal.SIGKILL)
    assert pods.codes()[1] == 74, pods.said(1)
