"""`--evaluator`: a process aside evaluates what the others train, and disturbs nobody."""

from __future__ import annotations

import json
import re

from conftest import Jobs

SCRIPT = """
import os, sys, time
import keras, numpy as np, tfrun

def wait_for_the_failure():
    log, until = os.path.join(os.environ["TFRUN_RUN_DIR"], "events.jsonl"), time.monotonic() + 60
    while '"event": "failure"' not in open(log).read() and time.monotonic() < until:
        time.sleep(0.05)

x = np.random.default_rng(0).normal(size=(96, 4)).astype("float32")
y = x.sum(axis=1)
with tfrun.strategy().scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
here = tfrun.world()
if here.role == "evaluator" and "fails" in sys.argv:
    raise ValueError("only here")
if here.role != "evaluator" and sys.argv[1:]:
    wait_for_the_failure()
data = {} if "none" in sys.argv else {"validation_data": (x, y)}
history = model.fit(x, y, batch_size=24, epochs=6, verbose=0, shuffle=False, **data)
if here.role == "evaluator":
    print("evaluated", history.epoch, history.history)
print(here.role, here.is_chief, here.size, model.evaluate(x, y, verbose=0), flush=True)
model.save("model.keras")
"""


def told(jobs: Jobs, name: str) -> list[str]:
    return (jobs.directory / "run" / "logs" / name).read_text().splitlines()


def test_it_sees_checkpoints_and_the_last_state(jobs: Jobs) -> None:
    jobs.script(SCRIPT)
    options = ("--evaluator", "--checkpoint-every", "epoch", "--run-dir", "run")
    result = jobs.run("-n", 2, *options, "train.py")
    assert result.returncode == 0, result.stderr
    assert "2 workers · an evaluator" in result.stderr
    shown = re.findall(r"tfrun: evaluator 0: step ([\d,]+): loss (\S+), mae (\S+)", result.stderr)
    assert shown and shown[-1][0] == "24"
    steps = [int(step) for step, *_ in shown]
    assert steps == sorted(steps) and all(step % 4 == 0 for step in steps)

    (end,) = (line for line in told(jobs, "evaluator-0.log") if line.startswith("evaluator "))
    (chief,) = (line for line in result.stdout.splitlines() if line.startswith("worker "))
    role, is_chief, size, *_ = end.split()
    assert (role, is_chief, size) == ("evaluator", "False", "1")
    assert chief.split()[1:3] == ["True", "2"]
    found, wanted = (json.loads(line[line.index("[") :]) for line in (end, chief))
    assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) < 1e-5
    (line,) = (line for line in told(jobs, "evaluator-0.log") if line.startswith("evaluated "))
    assert "'val_loss'" in line and "'val_mae'" in line


def test_one_that_fails_or_has_nothing_to_do_is_done_without(jobs: Jobs) -> None:
    jobs.script(SCRIPT)
    for argument, why in (("fails", "only here"), ("none", "TFRUN-509")):
        result = jobs.run("--evaluator", "--run-dir", "run", "--fresh", "train.py", argument)
        assert result.returncode == 0, result.stderr
        (line,) = (one for one in result.stderr.splitlines() if "goes on without it" in one)
        assert line.startswith("tfrun: evaluator 0 raised ") and why in line
        assert any(why in line for line in told(jobs, "evaluator-0.log"))
