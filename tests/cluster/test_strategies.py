"""`tfrun.strategy()` in a job and without; several devices give one device's numbers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from conftest import Jobs

TRAIN = """
import json, sys, threading, time
import keras, numpy as np, tensorflow as tf, tfrun
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
x = np.random.default_rng(0).random((256, 8), np.float32)
y = (x.sum(1) > 4).astype("float32")[:, None]


def train(kind, devices=None, layers=(), **options):
    keras.utils.set_random_seed(0)
    strategy = tfrun.strategy(kind, devices=devices)
    with strategy.scope():
        hidden = keras.layers.Dense(16, activation="relu")
        model = keras.Sequential([keras.Input((8,)), hidden, *[l() for l in layers],
                                  keras.layers.Dense(1)])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01, **options), loss, metrics=["accuracy"])
    history = model.fit(x, y, batch_size=48, epochs=3, shuffle=False, verbose=0).history
    weights = [float(np.abs(w).sum()) for w in model.get_weights()]
    return {"name": type(strategy).__name__, "history": history, "weights": weights}


CASES = {
    "plain": {},
    "clipnorm": {"clipnorm": 0.01},
    "global_clipnorm": {"global_clipnorm": 0.01},
    "accumulation": {"gradient_accumulation_steps": 2},
    "weight decay": {"weight_decay": 0.01},
    "moving average": {"use_ema": True, "ema_overwrite_frequency": 3},
    "state": {"layers": [keras.layers.BatchNormalization, lambda: keras.layers.Dropout(0.1)]},
}
two = ["CPU:0", "CPU:1"]
result = {name: {"one_device": train("one_device", **case)} for name, case in CASES.items()}
for name, case in CASES.items():
    result[name]["mirrored"] = train("mirrored", two, **case)
for name in ("plain", "state"):
    result[name]["central_storage"] = train("central_storage", two, **CASES[name])
print(json.dumps(result))
"""


def python(jobs: Jobs, text: str, **environment: str) -> str:
    jobs.script(text)
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=jobs.directory,
        env={**jobs.environment, "CUDA_VISIBLE_DEVICES": "-1", **environment},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def flat(result: dict) -> list[float]:
    history = (value for values in result["history"].values() for value in values)
    return [*history, *result["weights"]]


@pytest.mark.thorough  # test_engine_one_process.py has nine variants of it, each time
def test_several_devices_give_the_numbers_of_one(jobs: Jobs) -> None:
    """Fourteen strategies in one process: their collectives do not meet either."""
    results = json.loads(python(jobs, TRAIN))
    for name, by_kind in results.items():
        assert by_kind["mirrored"]["name"] == "Mirrored"
        if name == "state":
            # Each replica normalises and drops for itself: only the kinds agree.
            expected = by_kind["central_storage"]
        else:
            expected = by_kind["one_device"]
        for kind, result in by_kind.items():
            if name == "state" and kind == "one_device":
                continue
            assert flat(result) == pytest.approx(flat(expected), rel=1e-5, abs=1e-5), (name, kind)


WRONG = """
import json, threading, time
began = time.monotonic()
import tensorflow, tfrun
imported = time.monotonic() - began
found = []
for kind, options in json.loads({cases!r}):
    start = time.monotonic()
    try:
        if kind == "too late":
            import tensorflow as tf
            tf.constant(1.0)
        tfrun.strategy("multi_worker" if kind == "too late" else kind, **options)
        found.append([None, 0])
    except tfrun.TfrunError as error:
        found.append([error.code, time.monotonic() - start])
print(json.dumps([found, imported, [thread.name for thread in threading.enumerate()]]))
"""


def wrong(jobs: Jobs, *cases: tuple[str, dict], **environment: str) -> list[str]:
    """Returns the code of each case; checks that none waits for anything or leaves a thread.

    A refusal takes a small part of what an import of TensorFlow takes, on any machine; cluster
    managers are waited for as long as several.
    """
    text = python(jobs, WRONG.format(cases=json.dumps(cases)), **environment)
    found, imported, threads = json.loads(text)
    assert threads == ["MainThread"]
    assert all(seconds < max(10, 5 * imported) for _, seconds in found), (found, imported)
    return [code for code, _ in found]


def test_kinds_that_do_not_fit_are_refused(jobs: Jobs) -> None:
    assert wrong(
        jobs,
        ("ring", {}),
        ("parameter_server", {}),
        ("multi_worker", {"devices": ["CPU:0"]}),
        ("one_device", {"devices": ["CPU:0", "CPU:1"]}),
    ) == ["TFRUN-501", "TFRUN-503", "TFRUN-503", "TFRUN-503"]


def test_kinds_that_do_not_fit_the_cluster_are_refused(jobs: Jobs) -> None:
    two = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}
    cases = (
        ("one_device", {}),
        ("mirrored", {}),
        ("central_storage", {}),
        ("parameter_server", {}),
        ("too late", {}),
    )
    assert wrong(jobs, *cases, TF_CONFIG=json.dumps(two)) == ["TFRUN-503"] * 4 + ["TFRUN-510"]


SERVED = """
import json, tensorflow as tf, tfrun
from tfrun.patches.apply import apply
apply()
found = []
for make in (tf.distribute.MultiWorkerMirroredStrategy, lambda: tfrun.strategy("multi_worker"),
             lambda: tfrun.strategy("mirrored")):
    try:
        make()
    except tfrun.TfrunError as error:
        found.append(str(error))
print(json.dumps(found))
"""


def test_what_does_not_fit_parameter_servers_is_refused_and_does_not_wait(jobs: Jobs) -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    text = json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})
    said = json.loads(python(jobs, SERVED, TF_CONFIG=text))
    assert len(said) == 3 and all(text.startswith("TFRUN-503") for text in said)
    assert "kind='parameter_server'" in said[2]
    alone = json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}})
    kinds = "import tfrun\nprint(*{type(tfrun.strategy(k)).__name__ for k in ('auto', %r)})"
    assert python(jobs, kinds % "parameter_server", TF_CONFIG=alone) == "OneDeviceStrategy\n"


def test_without_a_tpu_the_answer_comes_at_once(jobs: Jobs) -> None:
    """No name, an unknown one, a port where nobody listens, a server that is no TPU's."""
    server = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
            "print(server.getsockname()[1], flush=True)\n"
            "held = [server.accept() for _ in range(9)]",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        silent = int(server.stdout.readline())
        names: list[dict] = [{}, {"tpu": "none"}, {"tpu": "grpc://127.0.0.1:1"}]
        names.append({"tpu": f"grpc://127.0.0.1:{silent}"})
        assert wrong(jobs, *[("tpu", name) for name in names]) == ["TFRUN-502"] * 4
    finally:
        server.kill()
        server.communicate()


def test_auto_follows_the_job(jobs: Jobs) -> None:
    jobs.script("import tfrun\nprint(type(tfrun.strategy()).__name__)")
    assert jobs.run("train.py").stdout == "OneDeviceStrategy\n"
    assert jobs.run("-n", 2, "train.py").stdout == "MultiWorkerMirrored\n"
    assert jobs.run("-n", 2, "--ps", 1, "train.py").stdout == "ParameterServer\n"


def test_a_coordinator_schedules_on_workers_and_servers(jobs: Jobs) -> None:
    jobs.script(
        "import os, tensorflow as tf, tfrun\n"
        "strategy = tfrun.strategy()\n"
        "coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)\n"
        "with strategy.scope():\n    total = tf.Variable(0.0)\n"
        "@tf.function\ndef step():\n    total.assign_add(1.0)\n"
        "for _ in range(40):\n    coordinator.schedule(step)\n"
        "coordinator.join()\n"
        "print(total.numpy(), total.device, tfrun.world().role, tfrun.world().size)\n"
    )
    result = jobs.run("-n", 2, "--ps", 2, "--run-dir", "run", "train.py")
    assert result.stdout == "40.0 /job:ps/replica:0/task:0/device:CPU:0 chief 3\n", result.stderr
    logs = {path.name for path in (jobs.directory / "run/logs").iterdir()}
    assert {"chief-0.log", "worker-0.log", "worker-1.log", "ps-0.log", "ps-1.log"} <= logs


NUMBERS = """
import keras, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    optimizer = keras.optimizers.SGD(0.5)
print(float(optimizer.learning_rate), int(optimizer.iterations))
"""


def test_variables_of_a_strategy_are_numbers(jobs: Jobs) -> None:
    jobs.script(NUMBERS)
    result = jobs.run("-n", 2, "train.py")
    assert result.stdout == "0.5 0\n", result.stderr


def test_tensorflow_still_needs_that_repair(jobs: Jobs) -> None:
    """When this fails, patches/tf_variables.py need not make them numbers."""
    text = (
        "from tensorflow.python.distribute import values\n"
        "print(hasattr(values.DistributedVariable, '__float__'))\n"
    )
    assert python(jobs, text) == "False\n"
