"""`--cluster FILE` on this machine: a chief and a worker at the ports of the file."""

from __future__ import annotations

import json
import os
import socket

from conftest import Jobs
from tfrun.cluster.ports import PortReservation

SCRIPT = """
import json, os
import keras, numpy as np, tfrun
x = np.random.default_rng(0).normal(size=(96, 4)).astype("float32")
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
history = model.fit(x, x.sum(axis=1), batch_size=24, epochs=2, verbose=0)
here = tfrun.world()
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
print(json.dumps([here.role, here.rank, here.size, here.is_chief, cluster]), flush=True)
"""


def test_chief_and_worker(jobs: Jobs) -> None:
    with socket.create_server(("", 0)) as one, socket.create_server(("", 0)) as other:
        ports = [held.getsockname()[1] for held in (one, other)]
    cluster = {"chief": [f"localhost:{ports[0]}"], "worker": [f"localhost:{ports[1]}"]}
    (jobs.directory / "cluster.json").write_text(json.dumps(cluster))
    jobs.script(SCRIPT)
    result = jobs.run("--cluster", "cluster.json", "train.py")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == ["chief", 0, 2, True, cluster]
    said = (jobs.run_dir / "logs" / "worker-0.log").read_text().splitlines()[-1]
    assert json.loads(said) == ["worker", 1, 2, False, cluster]
    refused = jobs.run("--cluster", "cluster.json", "-n", 2, "train.py")
    assert refused.returncode == 2 and "TFRUN-107" in refused.stderr
    with socket.create_server(("", ports[1])):
        taken = jobs.run("--cluster", "cluster.json", "train.py")
    assert taken.returncode == 1 and "TFRUN-208" in taken.stderr
    assert f"port {ports[1]} cannot be used: Address already in use; " in taken.stderr
    assert f"(pid {os.getpid()}) listens there" in taken.stderr


SERVED = """
import tensorflow as tf, tfrun
coordinator = tf.distribute.coordinator.ClusterCoordinator(tfrun.strategy())
with coordinator.strategy.scope():
    total = tf.Variable(0.0)
add = tf.function(lambda: total.assign_add(1.0))
for _ in range(20):
    coordinator.schedule(add)
coordinator.join()
print(total.numpy(), tfrun.world().role, os.environ["TF_CONFIG"])
"""


def test_parameter_servers(jobs: Jobs) -> None:
    """The file names no chief, as TensorFlow's own examples do not."""
    with PortReservation(2) as reserved:
        cluster = {
            role: [f"localhost:{reserved.ports[i]}"] for i, role in enumerate(("worker", "ps"))
        }
    (jobs.directory / "cluster.json").write_text(json.dumps(cluster))
    jobs.script("import os" + SERVED)
    result = jobs.run("--cluster", "cluster.json", "train.py")
    assert result.returncode == 0, result.stderr
    total, role, text = result.stdout.split(maxsplit=2)
    assert (total, role) == ("20.0", "chief")
    assert "1 worker · 1 parameter server" in result.stderr
    assert {**json.loads(text)["cluster"], "chief": None} == {**cluster, "chief": None}
