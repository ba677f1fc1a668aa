"""Jobs under a real Slurm: srun, sbatch, its order of hosts, cancelling and requeueing."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import TFRUN, certificate
from machines import thorough
from slurm_lab import PATH, SlurmLab, slurm_on_hosts, why_not

from conftest import wait_until

JOB_SECONDS = 150
REASON = why_not()
pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=f"no Slurm to test with: {REASON}"),
    thorough,
    pytest.mark.timeout(500),
]

WHERE = """
import json, os, pathlib, sys
from tfrun.launcher.scheduler import place_of
place = place_of(os.environ)
said = {"nodes": place.nodes, "here": place.here, "host": os.uname().nodename}
said |= {"agent": getattr(place, "agent", ""), "rank": getattr(place, "rank", -1)}
pathlib.Path(f"{sys.argv[1]}-{said['rank']}.json").write_text(json.dumps(said))
"""
# Three steps a second; each epoch is told, so that the order of two runs can be seen.
FIT = """
import json, os, pathlib, time
import keras, numpy as np, tfrun
names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
here = {name: os.environ[name] for name in names} | {"host": os.uname().nodename}
pathlib.Path(f"place-{here['RANK']}.json").write_text(json.dumps(here))
class Told(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, "restart", os.environ.get("SLURM_RESTART_COUNT", "0"), flush=True)
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(float(os.environ.get("PAUSE", "0")))
x = np.random.default_rng(0).normal(size=(96, 4)).astype("float32")
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
epochs = int(os.environ.get("EPOCHS", "2"))
model.fit(x, x.sum(axis=1), batch_size=24, epochs=epochs, verbose=0, callbacks=[Told()])
print("trained", epochs, flush=True)
"""


@contextmanager
def a_cluster(tmp_path: Path, count: int, *, munge: bool = False) -> Iterator[SlurmLab]:
    """With a script to train."""
    with slurm_on_hosts(tmp_path, count, munge=munge) as slurm:
        (slurm.work / "train.py").write_text(FIT)
        yield slurm


# What a listener on the network could take part with: what agents say to the control port, and what
# srun tells them.
SECRETS = (b"Authorization: Bearer", b'"token"')


def encrypt(slurm: SlurmLab) -> None:
    """Has every tfrun use TLS, with a certificate that is for none of the hosts."""
    cert, key = certificate(slurm.work, "10.99.0.1")
    slurm.environment |= {"TFRUN_TLS_CERT": cert, "TFRUN_TLS_KEY": key}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SlurmLab]:
    """Two nodes."""
    with a_cluster(tmp_path, 2) as slurm:
        yield slurm


def log_of(slurm: SlurmLab, name: str = "run/slurm.log") -> str:
    path = slurm.work / name
    return path.read_text() if path.exists() else ""


def test_eleven_nodes_in_slurms_order(tmp_path: Path) -> None:
    """Where TensorFlow's resolver gives ten of eleven ranks another host's address."""
    with a_cluster(tmp_path, 11) as slurm:
        (slurm.work / "where.py").write_text(WHERE)
        srun = ("srun", "-I5", "-N11", "-n11", sys.executable, "where.py", "step")
        slurm.call(*srun)
        names = [f"n{number}" for number in range(1, 12)]
        for rank, name in enumerate(names):
            said = json.loads((slurm.work / f"step-{rank}.json").read_text())
            assert [node for node, _ in said["nodes"]] == names
            assert (said["agent"], said["here"], said["host"]) == (name, name, name)
        wrap = f"{sys.executable} where.py batch"
        slurm.call("sbatch", "--wait", "-N11", f"--wrap={wrap}", "-o", "where.log")
        said = json.loads((slurm.work / "batch--1.json").read_text())
        assert said["nodes"] == [[name, 1] for name in names]


def test_srun_starts_every_worker(cluster: SlurmLab) -> None:
    encrypt(cluster)
    srun = ("srun", "-I5", "-N2", "-n3", TFRUN, "--run-dir", "run", "train.py")
    with cluster.lab.wiretap() as heard:
        said = cluster.call(*srun, seconds=JOB_SECONDS)
        assert not [secret for secret in SECRETS if heard(secret)]
    assert "trained 2" in said and "3 workers" in said
    places = [json.loads((cluster.work / f"place-{rank}.json").read_text()) for rank in range(3)]
    assert [place["host"] for place in places] == ["n1", "n1", "n2"]
    assert [place["LOCAL_RANK"] for place in places] == ["0", "1", "0"]
    assert [place["LOCAL_WORLD_SIZE"] for place in places] == ["2", "2", "1"]
    assert not list((cluster.work / "run").glob(".slurm-*"))


def test_tasks_that_do_not_see_the_run_directory(cluster: SlurmLab) -> None:
    line = f"exec {TFRUN} --run-dir run-$SLURM_PROCID --join-timeout 8 train.py"
    said = cluster.call("srun", "-I5", "-N2", "bash", "-c", line, fails=True, seconds=60)
    assert "TFRUN-306: no launcher was found in 8 s" in said
    assert "TFRUN-303" in said and "waiting for n2" in said


def test_preemption_requeues_and_the_job_goes_on(cluster: SlurmLab) -> None:
    cluster.environment |= {"EPOCHS": "100", "PAUSE": "0.1"}
    encrypt(cluster)
    submit = (TFRUN, "submit", "slurm", "-N", "2", "--run-dir", "run", "train.py")
    with cluster.lab.wiretap() as heard:
        is_preempted_and_goes_on(cluster, cluster.call(*submit).split()[0], "--batch")
        assert not [secret for secret in SECRETS if heard(secret)]
    assert not list((cluster.work / "run").glob(".slurm-*"))


@pytest.mark.skipif(not shutil.which("munged", path=PATH), reason="not installed: munged")
def test_all_tasks_of_srun_are_preempted(tmp_path: Path) -> None:
    """Slurm signals every task at once, and each of them is a tfrun; with munge."""
    with a_cluster(tmp_path, 2, munge=True) as cluster:
        cluster.environment |= {"EPOCHS": "100", "PAUSE": "0.1"}
        (cluster.work / "run").mkdir()
        (cluster.work / "job.sh").write_text(
            "#!/bin/bash\n#SBATCH -N2 -n3 --requeue --open-mode=append --signal=TERM@60\n"
            f"srun {TFRUN} --run-dir run --grace 40 train.py\n"
        )
        said = cluster.call("sbatch", "--parsable", "-o", "run/slurm.log", "job.sh")
        is_preempted_and_goes_on(cluster, said.split()[0])


def test_salloc_and_a_node_that_is_lost(tmp_path: Path) -> None:
    with a_cluster(tmp_path, 3) as cluster:
        salloc = ("salloc", "-I5", "-N2", TFRUN, "--run-dir", "first", "train.py")
        with cluster.lab.wiretap() as heard:  # without TLS all is in clear
            said = cluster.call(*salloc, seconds=JOB_SECONDS)
            assert all(heard(secret) for secret in SECRETS)
        assert "trained 2" in said and "2 workers" in said
        places = [json.loads((cluster.work / f"place-{r}.json").read_text()) for r in range(2)]
        assert [place["host"] for place in places] == ["n1", "n2"]
        cluster.environment |= {"EPOCHS": "60", "PAUSE": "0.1"}
        (cluster.work / "run").mkdir()
        line = f"exec {TFRUN} --run-dir run -n 2:3 train.py"
        sbatch = ("sbatch", "-N3", "--no-kill", "-o", "run/slurm.log", f"--wrap={line}")
        cluster.call(*sbatch)
        wait_until(lambda: "epoch 2" in log_of(cluster), "it trains", JOB_SECONDS)
        cluster.lab.crash("n3")
        wait_until(lambda: "with 2 workers after" in log_of(cluster), "it goes on", JOB_SECONDS)
        wait_until(lambda: "trained 60" in log_of(cluster), "it ends", JOB_SECONDS)


@pytest.mark.parametrize("way", ["batch script", "srun"])
def test_a_job_of_a_fixed_size_that_loses_a_node_is_saved_and_runs_again(
    tmp_path: Path, way: str
) -> None:
    """Its other node was stopped at once, and it had failed before Slurm had seen anything."""
    with a_cluster(tmp_path, 3) as cluster:
        cluster.environment |= {"EPOCHS": "60", "PAUSE": "0.1"}
        (cluster.work / "run").mkdir()
        options = "--run-dir run --checkpoint-every 1h"
        start = f"exec {TFRUN} {options}" if way == "batch script" else f"srun {TFRUN} {options}"
        (cluster.work / "job.sh").write_text(
            "#!/bin/bash\n#SBATCH -N2 --requeue --open-mode=append --nodelist=n1\n"
            f"{start} train.py\n"
        )
        job = cluster.call("sbatch", "--parsable", "-o", "run/slurm.log", "job.sh").split()[0]
        wait_until(lambda: "epoch 2 restart 0" in log_of(cluster), "it trains", JOB_SECONDS)
        cluster.lab.crash("n2")
        # Slurm may end tfrun before that can say so itself.
        wait_until(lambda: "REQUEUE" in log_of(cluster), "it is requeued", 60)
        first = log_of(cluster)
        assert "TFRUN-301: " in first
        (step,) = re.findall(r"step (\d+) is saved in ", first)
        # As Slurm itself does, some minutes later.
        cluster.call("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=crashed")
        wait_until(lambda: cluster.state(job) == "PENDING", "it waits", 60)
        # Sooner the first run's srun, which is being ended, would end the second one's step.
        cluster.call("scontrol", "update", f"JobId={job}", "StartTime=now+20")
        wait_until(lambda: "trained 60" in log_of(cluster), "it ends", JOB_SECONDS)
        again = log_of(cluster).removeprefix(first)
        epoch = int(again.partition(" restart 1")[0].rpartition("epoch ")[2])
        assert epoch == int(step) // 4 >= 2
        wait_until(lambda: cluster.state(job) == "COMPLETED", "it has ended well", 30)


def is_preempted_and_goes_on(cluster: SlurmLab, job: str, *whom: str) -> None:
    """Sends SIGTERM to a job of 100 epochs that writes run/slurm.log, and cancels it at last.

    Args:
      cluster: where the job is.
      job: its number.
      whom: the option of scancel that says which of its processes are meant.
    """
    wait_until(lambda: "epoch 2 restart 0" in log_of(cluster), "it trains", JOB_SECONDS)
    cluster.call("scancel", *whom, "--signal=TERM", job)
    wait_until(lambda: "is requeued" in log_of(cluster), "it is requeued", 30)
    requeued = time.monotonic()
    assert "preempted by SIGTERM" in log_of(cluster)
    # Slurm lets a requeued job wait for two minutes. Ten seconds are what it needs itself: its
    # nodes may still be busy with forgetting the first run.
    wait_until(lambda: cluster.state(job) == "PENDING", "it waits", 30)
    cluster.call("scontrol", "update", f"JobId={job}", "StartTime=now+10")
    wait_until(lambda: cluster.state(job) == "RUNNING", "it runs again", 60)
    print(f"it runs again {time.monotonic() - requeued:.1f} s after it was requeued")
    wait_until(lambda: " restart 1" in log_of(cluster), "it goes on", JOB_SECONDS)
    print(f"it goes on {time.monotonic() - requeued:.1f} s after it was requeued")
    first = log_of(cluster).partition(" restart 1")[0].rpartition("epoch ")[2]
    assert int(first) >= 2
    cluster.call("scancel", job)
    wait_until(lambda: cluster.state(job) == "CANCELLED", "it is cancelled", 30)
    wait_until(lambda: not cluster.left(), "nothing is left", 10)
    began = time.monotonic()
    while time.monotonic() - began < 2:  # nor is it put into the queue again
        assert cluster.state(job) == "CANCELLED"
        time.sleep(0.2)
