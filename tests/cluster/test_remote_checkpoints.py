"""Jobs whose checkpoints and data are in object storage, on real servers and with faults."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import pytest
import tensorflow as tf

import object_servers
from conftest import Jobs, wait_until
from object_servers import BUCKET
from tfrun.checkpoint.remote_directory import RemoteDirectory
from tfrun.checkpoint.remote_store import RemoteStore
from tfrun.observe.events import read_events
from tfrun.storage.objects import Objects

SCRIPT = """
import hashlib, os, pathlib, time
import keras, numpy as np, tensorflow as tf, tfrun
class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        pathlib.Path(f"epoch-{epoch}").touch()
        if wait := os.environ.get("WAIT"):
            until = time.monotonic() + 60
            while not pathlib.Path(wait).exists() and epoch >= 1 and time.monotonic() < until:
                time.sleep(0.02)
keras.utils.set_random_seed(1)
with tfrun.strategy().scope():
    layers = [keras.Input((8,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
if records := os.environ.get("RECORDS"):
    def parse(record):
        x = tf.io.decode_raw(record, tf.float32)
        return tf.ensure_shape(x, [8]), tf.reduce_sum(x)
    data = tfrun.Dataset.from_tfrecords(records, parse, batch_size=16, shuffle=True, seed=1)
    if "FORGOTTEN" in os.environ:  # as on a machine that has no copy: this process has them open
        next(iter(data.tf_data()))
        for path in data.plan.source._paths:
            os.unlink(path)
else:
    x = np.random.RandomState(0).rand(128, 8).astype("float32")
    data = tfrun.Dataset.from_arrays((x, x.sum(1)), batch_size=16, shuffle=True, seed=1)
history = model.fit(data, epochs=4, callbacks=[Slow()], verbose=0).history
print("LOSSES", *history["loss"], flush=True)
if tfrun.world().is_chief:
    weights = b"".join(w.tobytes() for w in model.get_weights())
    print("WEIGHTS", hashlib.sha256(weights).hexdigest(), flush=True)
"""
OPTIONS = ("-n", 2, "--seed", 1, "--checkpoint-every", 5, "--keep", 2)


def weights(said: str) -> str:
    (found,) = re.findall(r"WEIGHTS (\w+)", said)
    return found


@pytest.mark.parametrize("scheme", ["s3", pytest.param("gs", marks=pytest.mark.net)])
def test_killed_and_started_again(jobs: Jobs, servers, scheme):
    """The launcher is killed: what its agent saves goes there, too; then the bits are the same."""
    jobs.script(SCRIPT)
    plain = jobs.run(*OPTIONS, "--run-dir", "plain", "train.py")
    assert plain.returncode == 0, plain.stderr
    for path in jobs.directory.glob("epoch-*"):
        path.unlink()
    server, where = servers[scheme], f"{scheme}://{BUCKET}/killed"
    command = (*OPTIONS, "--checkpoint-dir", where, "--run-dir", "run", "train.py")
    process = jobs.start(*command, env={**server.environment, "WAIT": "never"})
    wait_until((jobs.directory / "epoch-1").exists, "two epochs are trained", 60)
    process.kill()
    process.communicate(timeout=30)
    again = jobs.run(*command, env=server.environment)
    assert again.returncode == 0, again.stderr
    assert "continuing from the last checkpoint here, of step 16" in again.stderr, again.stderr
    assert weights(again.stdout) == weights(plain.stdout)
    with object_servers.in_environment(server):
        there = Objects(where).list()
        names = {name.partition("/")[0] for name in there}
        assert len([name for name in names if name.startswith("ckpt-")]) == 2
        assert names - {"calls", "checkpoint", "finished"} == {n for n in names if "ckpt-" in n}
        newest = RemoteStore(Objects(where)).newest()
        assert newest is not None and newest.step == 31


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("a missing bucket", "there is no such bucket"),
        ("no credentials", "there are no valid credentials"),
        ("denied", "access is denied"),
        ("another kind of URL", "TFRUN-105"),
    ],
)
def test_what_is_wrong_is_said_before_training_starts(jobs: Jobs, servers, case, said):
    jobs.script("raise SystemExit('it has begun')")
    where, env = f"s3://{BUCKET}/refused", dict(servers["s3"].environment)
    proxy = object_servers.Faults(servers["s3"])
    try:
        if case == "a missing bucket":
            where = "s3://nowhere/x"
        elif case == "no credentials":
            env = {name: value for name, value in env.items() if name not in object_servers.S3_KEYS}
            env |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
        elif case == "denied":
            env = proxy.environment
            proxy.answers = lambda method, path: "deny" if method == "PUT" else ""
        else:
            where = "ftp://a/b"
        done = jobs.run("--checkpoint-dir", where, "train.py", env=env)
    finally:
        proxy.close()
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "TFRUN-704" in done.stderr or "TFRUN-105" in done.stderr
    assert "--checkpoint-dir" in done.stderr and "it has begun" not in done.stderr
    assert not (jobs.directory / "tfrun-runs").exists()


@pytest.mark.net
def test_a_storage_that_goes_away_and_comes_back(jobs: Jobs, servers):
    jobs.script(SCRIPT)
    proxy, where = object_servers.Faults(servers["s3"]), f"s3://{BUCKET}/away"
    env = {**proxy.environment, "WAIT": "go"}
    broken, said = threading.Event(), []

    def answers(method: str, path: str) -> str:
        if "ckpt-15" in path and not broken.is_set():
            broken.set()
        return "deny" if broken.is_set() and not (jobs.directory / "go").exists() else ""

    proxy.answers = answers
    options = ("-n", 2, "--seed", 1, "--checkpoint-every", 5, "--keep", 9, "--run-dir", "run")
    process = jobs.start(*options, "--checkpoint-dir", where, "train.py", env=env)
    try:
        assert broken.wait(60), "the third checkpoint is written"
        log = jobs.directory / "run" / "logs" / "worker-0.log"
        wait_until(
            lambda: log.exists() and "No checkpoint is being saved" in log.read_text(), "it is said"
        )
        (jobs.directory / "go").touch()
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        proxy.close()
    said = err + log.read_text()
    assert process.returncode == 0, err
    assert "TFRUN-704" in said and "Checkpoints are saved again" in said
    with object_servers.in_environment(servers["s3"]):
        found = [one.step for _, one in RemoteStore(Objects(where)).list()]
        newest = RemoteStore(Objects(where)).newest()
    assert newest is not None and newest.step == found[-1] and 15 not in found
    assert not [
        e for e in read_events(jobs.directory / "run/events.jsonl") if e["event"] == "failure"
    ]


def test_two_jobs_at_one_place(jobs: Jobs, servers):
    jobs.script(SCRIPT)
    server, where = servers["s3"], f"s3://{BUCKET}/two"
    options = ("--checkpoint-dir", where, "train.py")
    process = jobs.start("--run-dir", "one", *options, env={**server.environment, "WAIT": "never"})
    try:
        wait_until((jobs.directory / "epoch-1").exists, "it trains", 60)
        with object_servers.in_environment(server):
            before = {n: e for n, e in Objects(where).list().items() if not n.startswith(".")}
            for more in ((), ("--fresh",)):
                other = jobs.run("--run-dir", "two", *more, *options, env=server.environment)
                assert other.returncode == 2 and "TFRUN-110" in other.stderr, other.stderr
                assert "checkpoint directory" in other.stderr
            after = {n: e for n, e in Objects(where).list().items() if not n.startswith(".")}
        assert before == after
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    with object_servers.in_environment(server):
        assert not [name for name in Objects(where).list() if name.startswith(".")]


def write_records(folder: Path) -> None:
    folder.mkdir()
    for number in range(3):
        with tf.io.TFRecordWriter(str(folder / f"part-{number}.tfrecord")) as writer:
            for row in range(40 + number):
                x = tf.random.stateless_uniform([8], seed=(number, row))
                writer.write(x.numpy().tobytes())


def store(folder: Path, server: object_servers.Server, url: str) -> None:
    """Puts the files of a folder there."""
    with object_servers.in_environment(server):
        for path in folder.iterdir():
            Objects(url).put(path.name, path)


@pytest.mark.net
def test_records_in_a_storage_are_those_on_the_disk(jobs: Jobs, servers):
    jobs.script(SCRIPT)
    folder, server = jobs.directory / "records", servers["s3"]
    write_records(folder)
    store(folder, server, f"s3://{BUCKET}/records")
    found = []
    for pattern in (f"{folder}/*.tfrecord", f"s3://{BUCKET}/records/part-*.tfrecord"):
        env = {**server.environment, "RECORDS": pattern}
        done = jobs.run("-n", 2, "--seed", 1, "--ledger", "train.py", env=env)
        assert done.returncode == 0, done.stderr
        found.append(weights(done.stdout))
    assert found[0] == found[1]


@pytest.mark.net
def test_workers_of_parameter_servers_need_no_copy(jobs: Jobs, servers):
    """They may be on other machines than the chief, which alone has one."""
    jobs.script(SCRIPT)
    folder, server = jobs.directory / "records", servers["s3"]
    write_records(folder)
    store(folder, server, f"s3://{BUCKET}/served")
    found = []
    for pattern, more in (
        (f"{folder}/*.tfrecord", {}),
        (f"s3://{BUCKET}/served/part-*.tfrecord", {"FORGOTTEN": "yes"}),
    ):
        env = {**server.environment, "RECORDS": pattern, **more}
        options = ("-n", 1, "--ps", 1, "--seed", 1, "--checkpoint-every", "off")
        done = jobs.run(*options, "train.py", env=env)
        assert done.returncode == 0, done.stderr
        (said,) = re.findall(r"LOSSES (.*)", done.stdout)
        found.append([float(loss) for loss in said.split()])
    assert len(found[0]) == 4 and found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("s3://bucket/none-*.tfrecord", "TFRUN-604"), ("s3://nowhere/a.tfrecord", "TFRUN-704")],
)
@pytest.mark.net
def test_records_that_are_not_there(jobs: Jobs, servers, pattern, said):
    jobs.script(SCRIPT)
    done = jobs.run("train.py", env={**servers["s3"].environment, "RECORDS": pattern})
    assert done.returncode != 0 and said in done.stderr, done.stderr


@pytest.mark.net
def test_the_evaluator_reads_there(jobs: Jobs, servers):
    script = SCRIPT.replace("verbose=0)", "verbose=0, validation_data=(x, x.sum(1)))")
    jobs.script(script)
    where = f"s3://{BUCKET}/evaluated"
    options = ("--evaluator", "--checkpoint-every", "epoch", "--checkpoint-dir", where)
    done = jobs.run(*options, "train.py", env=servers["s3"].environment)
    assert done.returncode == 0, done.stderr
    (log,) = jobs.run_dir.glob("logs/evaluator-0*.log")
    assert "step 32: " in log.read_text() or "step 32: " in done.stderr, log.read_text()


@pytest.mark.net
def test_preempted_and_started_again(jobs: Jobs, servers):
    jobs.script(SCRIPT)
    server, where = servers["gs"], f"gs://{BUCKET}/preempted"
    command = ("-n", 2, "--seed", 1, "--checkpoint-dir", where, "--run-dir", "run", "train.py")
    process = jobs.start(*command, env={**server.environment, "WAIT": "never"})
    wait_until((jobs.directory / "epoch-1").exists, "two epochs are trained", 60)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75 and "is saved in gs://" in err, err
    again = jobs.run(*command, env=server.environment)
    plain = jobs.run("-n", 2, "--seed", 1, "--run-dir", "plain", "train.py")
    assert weights(again.stdout) == weights(plain.stdout)
    with object_servers.in_environment(server):
        assert RemoteDirectory(where).calls()
