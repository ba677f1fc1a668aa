"""A host with a narrow network holds up a job, and is named."""

from __future__ import annotations

import pytest
from machines import JOB_SECONDS, Hosts, needs_hosts, thorough

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

# 4 MB of gradients and little to compute; until a file says that it is enough.
SCRIPT = """
import pathlib
import keras, numpy as np, tfrun

with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(1000, use_bias=False)])
    model.compile("sgd", "mse")

class Enough(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch % 10 == 9:
            self.model.stop_training = pathlib.Path("enough").exists()

x = np.random.default_rng(0).normal(size=(3000, 1000)).astype("float32")
data = tfrun.Dataset.from_arrays((x, x), batch_size=30)
model.fit(data, epochs=10_000, verbose=0, callbacks=[Enough()])
"""


@thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("communication", ["ring", "host"])
def test_a_narrow_network_is_named(hosts: Hosts, communication: str) -> None:
    options = ("-H", "n1,n2,n3", "--communication", communication, "--run-dir", "run")
    process = hosts.start(SCRIPT, *options)
    try:
        reports = hosts.directory / "run" / "events.jsonl"
        # At its first report: three make a verdict, and this machine may be busy.
        wait_until(lambda: reports.exists() and hosts.events("progress"), "it trains", 90)
        hosts.lab.slow("n2", "100mbit")
        found = wait_until(lambda: hosts.events("straggler"), "the slow one is named", JOB_SECONDS)
    finally:
        (hosts.directory / "enough").touch()
        code, _, err = hosts.end(process)
    print(err)  # pytest shortens long strings
    assert code == 0
    first = found[0]
    assert (first["task"], first["slow_at"]) == ("worker:1", "network")
    # 5.3 MB a step at 12.5 MB/s, to one of the other two.
    assert first["own_seconds"] > 0.2 and first["network_to"] in ("10.66.0.1", "10.66.0.3")
    said = f"worker 1 slows the others down: its network to {first['network_to']} takes the time"
    assert err.count(said) == 1
