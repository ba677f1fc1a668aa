"""The launcher's network breaks for some seconds: the machines train on, and none is lost."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from machines import Hosts, needs_hosts, thorough

from conftest import wait_until

pytest_plugins = ["host_fixtures"]
pytestmark = needs_hosts

# Slow; says when an epoch has ended, and ends the last one when it may.
SCRIPT = """
import json, os, pathlib, time
import keras, numpy as np, tensorflow as tf, tfrun
keras.utils.set_random_seed(3)
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
with tf.distribute.MultiWorkerMirroredStrategy().scope():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        pathlib.Path(f"epoch-{tfrun.world().round}-{epoch}").touch()
        while epoch == EPOCHS - 1 and not pathlib.Path("go-on").exists():
            time.sleep(0.05)
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.03)
EPOCHS = int(os.environ["EPOCHS"])
data = tfrun.Dataset.from_arrays((x, x[:, :1]), batch_size=8, shuffle=True, seed=1)
history = model.fit(data, epochs=EPOCHS, callbacks=[Slow()], verbose=0)
if tfrun.world().is_chief:
    found = {"loss": history.history["loss"], "round": tfrun.world().round}
    pathlib.Path("found.json").write_text(json.dumps(found))
"""
EPOCHS, SECONDS = 60, 90


def reaches(hosts: Hosts, name: str) -> None:
    wait_until((hosts.directory / name).exists, f"{name} is reached", SECONDS)


@contextlib.contextmanager
def killed_on_error(hosts: Hosts, process: subprocess.Popen) -> Iterator[None]:
    try:
        yield
    except BaseException:
        hosts.kill(process)
        print(hosts.said)
        raise


def said_by(hosts: Hosts, process: subprocess.Popen) -> str:
    """Waits for the job's good end; returns what it has said."""
    code, _, err = hosts.end(process)
    print(err)
    assert code == 0
    return err


def cut_off(hosts: Hosts, seconds: float, *options: str) -> str:
    """Trains with a launcher on n1 whose cable is out for a time; returns what was said."""
    hosts.environment["EPOCHS"] = str(EPOCHS)
    process = hosts.start(SCRIPT, *options, "--env", "EPOCHS", "--run-dir", "run", "--seed", "5")
    with killed_on_error(hosts, process):
        reaches(hosts, "epoch-0-2")
        hosts.lab.cut("n1")
        time.sleep(seconds)  # it is the fault
        hosts.lab.plug_in("n1")
        (hosts.directory / "go-on").touch()
    return said_by(hosts, process)


def started_again(hosts: Hosts, *, cable_out: bool) -> str:
    """Kills the launcher; starts the same command again at once, and returns what it said."""
    hosts.environment["EPOCHS"] = str(EPOCHS)
    options = ("-H", "n2,n3", "--env", "EPOCHS", "--run-dir", "run", "--seed", "5")
    options = (*options, "--checkpoint-every", "1h", "--launcher-timeout", "9")
    process = hosts.start(SCRIPT, *options)
    with killed_on_error(hosts, process):
        reaches(hosts, "epoch-0-2")
        if cable_out:
            hosts.lab.cut("n1")
        hosts.kill(process)
        if cable_out:
            hosts.lab.plug_in("n1")
        (hosts.directory / "go-on").touch()
    return said_by(hosts, hosts.start(SCRIPT, *options))


def went_on_from_memory(hosts: Hosts, err: str) -> None:
    step = re.search(r"continuing from the last checkpoint here, of step (\d+);", err)
    assert step and int(step.group(1)) >= 3 * 8 and "done again" not in err
    assert found(hosts)["round"] == 0 and len(found(hosts)["loss"]) == EPOCHS


def found(hosts: Hosts) -> dict:
    return json.loads((hosts.directory / "found.json").read_text())


@pytest.mark.timeout(240)
def test_the_machines_train_on_meanwhile(hosts: Hosts) -> None:
    err = cut_off(hosts, 6, "-H", "n2,n3")
    assert found(hosts)["round"] == 0 and len(found(hosts)["loss"]) == EPOCHS
    assert not any(map(hosts.events, ("agent_lost", "recovered", "failure")))
    assert "no machine has been heard from" in err and "have been heard from again after" in err


@thorough
@pytest.mark.timeout(240)
def test_a_launcher_with_a_worker_beside_it(hosts: Hosts) -> None:
    """Its worker has lost the others: they all go on from the memory, with the same machines."""
    cut_off(hosts, 7, "-H", "n1,n2,n3")
    assert found(hosts)["round"] == 1 and len(found(hosts)["loss"]) == EPOCHS
    assert {event["agent"] for event in hosts.events("agent_lost")} == {"n2", "n3"}
    assert {event["agent"] for event in hosts.events("agent_back")} == {"n2", "n3"}
    assert len(hosts.events("agent_joined")) == 3  # nobody had to come anew
    assert [event["lost_steps"] for event in hosts.events("recovered")] == [0]


@thorough
@pytest.mark.timeout(240)
def test_a_cut_that_takes_longer_than_they_wait(hosts: Hosts) -> None:
    cut_off(hosts, 14, "-H", "n2,n3", "--launcher-timeout", "6", "--checkpoint-every", "10")
    assert found(hosts)["round"] == 1 and len(found(hosts)["loss"]) == EPOCHS
    assert len(hosts.events("agent_joined")) == 4
    assert hosts.events("recovered")[0]["step"]  # of the checkpoint


@pytest.mark.timeout(240)
def test_the_launcher_is_killed_and_the_same_command_goes_on(hosts: Hosts) -> None:
    """No checkpoint was due: the agents save what they have in memory, and then end."""
    went_on_from_memory(hosts, started_again(hosts, cable_out=False))


@thorough
@pytest.mark.timeout(240)
def test_the_launcher_is_killed_while_its_cable_is_out(hosts: Hosts) -> None:
    """The machines train on: those of the new command wait until the old ones have ended."""
    err = started_again(hosts, cable_out=True)
    assert "of the previous job, still saves its state" in err
    went_on_from_memory(hosts, err)
