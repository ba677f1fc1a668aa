"""Each task of a parameter-server cluster started by hand, as scripts of the older style are."""

from __future__ import annotations

import json
import subprocess

import pytest

from conftest import JOB_SECONDS, Jobs
from tfrun.cluster.ports import PortReservation

ROLES = ("chief", "worker", "ps")
SCRIPT = """
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
assert resolver.task_type == "chief", "only the chief runs the script"
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)
@tf.function
def step():
    total.assign_add(1.0)
for _ in range(40):
    coordinator.schedule(step)
coordinator.join()
print(total.numpy(), total.device[:8])
"""


def ends(process: subprocess.Popen) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=JOB_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"{process.args} did not end\n{out[-2000:]}\n{err[-2000:]}")
    return process.returncode, out, err


def test_servers_wait_for_the_chief_and_end_after_it(jobs: Jobs) -> None:
    """The chief and a worker by TF_CONFIG, the server by `serve --role`."""
    with PortReservation(3) as reserved:
        ports = reserved.ports
    cluster = {role: [f"127.0.0.1:{port}"] for role, port in zip(ROLES, ports, strict=True)}
    (jobs.directory / "cluster.json").write_text(json.dumps(cluster))
    jobs.script(SCRIPT)

    def by_tf_config(role: str) -> subprocess.Popen:
        text = json.dumps({"cluster": cluster, "task": {"type": role, "index": 0}})
        return jobs.start("--run-dir", "run", "train.py", env={"TF_CONFIG": text})

    of_file = ("serve", "--role", "ps", "--cluster", "cluster.json", "--run-dir", "run")
    server, worker = jobs.start(*of_file), by_tf_config("worker")
    code, out, err = ends(by_tf_config("chief"))
    assert (code, out) == (0, "40.0 /job:ps/\n"), err
    for name, process in (("ps", server), ("worker", worker)):
        code, out, err = ends(process)
        assert (code, out) == (0, ""), err
        assert f"{name} 0 serves until the chief has ended" in err and "finished in" in err
        run = jobs.directory / "run"
        assert (run / f"{name}-0" / "logs" / f"{name}-0.log").exists()
