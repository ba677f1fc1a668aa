"""However often a job recovers, its run directory has the same files."""

from __future__ import annotations

from conftest import Jobs

SCRIPT = """
import os, signal
import keras, numpy as np, tfrun

with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.arange(160).reshape(40, 4).astype("float32") / 160
held = tfrun.Dataset.from_arrays((x[:8], x[:8, :1]), batch_size=4)

class Dies(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        step, here = int(self.model.optimizer.iterations), tfrun.world()
        if here.rank == 1 and here.round < int(os.environ["DEATHS"]) and step == 3 * here.round + 3:
            os.kill(os.getpid(), signal.SIGKILL)

data = tfrun.Dataset.from_arrays((x, x[:, :1]), batch_size=4, shuffle=True, seed=1)
model.fit(data, epochs=2, verbose=0, validation_data=held, callbacks=[Dies()])
model.fit(x, x[:, :1], batch_size=4, verbose=0)
"""


def test_recoveries_leave_no_more_files(jobs: Jobs) -> None:
    script, found = jobs.script(SCRIPT), []
    for deaths in (1, 4):
        run = jobs.directory / f"run-{deaths}"
        options = ("-n", 2, "--checkpoint-every", "4", "--keep", 2, "--run-dir", run)
        done = jobs.run(*options, script, env={"DEATHS": str(deaths)})
        assert done.returncode == 0 and f"{deaths} restart" in done.stderr, done.stderr
        files = (path.relative_to(run) for path in run.rglob("*") if path.is_file())
        found.append(sorted(str(path) for path in files if "checkpoints" not in path.parts))
        assert len(list((run / "checkpoints").glob("ckpt-*"))) == 2
        for rank in range(2):
            log = (run / f"logs/worker-{rank}.log").read_text()
            assert f"--- round {deaths} ---" in log
    assert found[0] == found[1], found
