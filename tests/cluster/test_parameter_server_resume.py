"""A server dies, then the chief, in the midst of `fit`: it goes on from the last checkpoint."""

from __future__ import annotations

import json

from conftest import Jobs

SCRIPT = """
import json, os, signal
import keras, numpy as np, tfrun

def kill(name):
    events = map(json.loads, open(os.environ["TFRUN_RUN_DIR"] + "/events.jsonl"))
    pids = [e["pid"] for e in events if e["event"] == "worker_started" and e["task"] == name]
    os.kill(pids[-1], signal.SIGKILL)

class Faults(keras.callbacks.Callback):
    seen = 0

    def on_train_batch_end(self, batch, logs=None):
        self.seen += 1
        if (round, self.seen) == (0, 100):
            kill("ps:1")
        if (round, self.seen) == (1, 100):
            kill("chief:0")

round = tfrun.world().round
x = np.random.default_rng(0).random((960, 8), np.float32)
y = (x.sum(1) > 4).astype("float32")
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
history = model.fit(x, y, batch_size=16, epochs=6, verbose=0, callbacks=[Faults()])
print(json.dumps([round, int(model.optimizer.iterations.numpy()), history.epoch]))
"""


def test_a_fit_goes_on_after_a_server_and_after_the_chief(jobs: Jobs) -> None:
    jobs.script(SCRIPT)
    options = ("--checkpoint-every", 20, "--run-dir", "run")
    result = jobs.run("-n", 2, "--ps", 2, *options, "train.py")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == [2, 6 * 60, list(range(6))]
    assert "ps 1 killed by SIGKILL at step " in result.stderr
    assert "chief 0 killed by SIGKILL at step " in result.stderr
    assert result.stderr.count("; resumed at step ") == 2
    lines = (jobs.directory / "run" / "events.jsonl").read_text().splitlines()
    found = [event for event in map(json.loads, lines) if event["event"] == "recovered"]
    first, second = (event["step"] for event in found)
    assert 0 < first < second, "each time from a newer checkpoint"
    assert [event["restarts"] for event in found] == [1, 2]
    assert all(0 <= event["lost_steps"] < 100 for event in found)
