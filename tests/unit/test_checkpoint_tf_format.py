"""TensorFlow's part of a checkpoint, from arrays."""

from __future__ import annotations

import logging
import os
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from tfrun.checkpoint import tf_format
from tfrun.checkpoint.atomic_store import Store
from tfrun.checkpoint.tf_format import CheckpointLayout
from tfrun.job.errors import TfrunError


class Twins(tf.Module):
    """Two variables of one name, one of a strange name, and a circle."""

    def __init__(self) -> None:
        self.a = tf.Variable([1.0, 2.0], name="same")
        self.b = [tf.Variable([3, 4], name="same"), {"x/y.z": tf.Variable("text", name="text")}]
        self.me = self

    def layout(self) -> CheckpointLayout:
        same, (text,) = self.b[0], self.b[1].values()
        names = {"model/same": self.a, "model/same#2": same, "model/text": text}
        return CheckpointLayout.of(self, names=names)


def arrays_of(layout: CheckpointLayout) -> dict[str, np.ndarray]:
    return {name: np.asarray(v.numpy()) for name, v in layout.variables.items()}


def small(step: int) -> dict[str, np.ndarray]:
    return {"model/v": np.full(1000, step, np.float32), "other": np.full(5, step)}


@pytest.fixture
def layout() -> CheckpointLayout:
    model = tf.Module()
    model.v = tf.Variable(tf.zeros(1000), name="v")  # pyright: ignore
    return CheckpointLayout.of(model, names={"model/v": model.v})  # pyright: ignore


def test_a_key_is_the_path_to_a_variable():
    assert Twins().layout().keys == {
        "model/same": "model/a/.ATTRIBUTES/VARIABLE_VALUE",
        "model/same#2": "model/b/0/.ATTRIBUTES/VARIABLE_VALUE",
        "model/text": "model/b/1/x.Sy..z/.ATTRIBUTES/VARIABLE_VALUE",
    }


def test_tensorflow_reads_what_was_given_not_what_is_in_the_variables(tmp_path):
    model = Twins()
    layout = model.layout()
    values = {
        "model/same": np.array([5, 6], np.float32),
        "model/same#2": np.array([7, 8], np.int32),
        "model/text": np.array(b"new", object),
    }
    layout.write(tmp_path / "ckpt", values, count=4)
    assert model.a.numpy().tolist() == [1, 2]
    again = Twins()
    checkpoint = tf.train.Checkpoint(model=again)
    checkpoint.restore(str(tmp_path / "ckpt")).assert_existing_objects_matched().assert_consumed()
    assert again.a.numpy().tolist() == [5, 6]
    assert again.b[0].numpy().tolist() == [7, 8]
    assert again.b[1]["x/y.z"].numpy() == b"new"
    assert checkpoint.save_counter.numpy() == 4
    read = tf_format.read(tmp_path / "ckpt", layout.keys)
    assert {name: value.tolist() for name, value in read.items()} == {
        name: value.tolist() for name, value in values.items()
    }


def test_several_models_and_optimizers_of_a_loop(tmp_path):
    models = {"model": tf.Module(), 2: tf.Module()}
    optimizers = [tf.Module(), tf.Module()]
    made = [*models.values(), *optimizers]
    for number, each in enumerate(made):
        each.v = tf.Variable([float(number)])  # pyright: ignore
    names = {str(number): each.v for number, each in enumerate(made)}  # pyright: ignore
    layout = CheckpointLayout.of(models, optimizers, names=names)
    layout.write(tmp_path / "c", {k: v.numpy() + 10 for k, v in names.items()})
    named = {str(name): model for name, model in models.items()}
    status = tf.train.Checkpoint(model=named, optimizer=optimizers).restore(str(tmp_path / "c"))
    status.assert_consumed()
    assert [float(v[0]) for v in names.values()] == [10, 11, 12, 13]


def test_the_caller_names_the_variables_and_leaves_some_out(tmp_path):
    model = Twins()
    elsewhere = tf.Variable(0.0)
    layout = CheckpointLayout.of(model, names={"first": model.a, "elsewhere": elsewhere})
    assert dict(layout.keys) == {"first": "model/a/.ATTRIBUTES/VARIABLE_VALUE"}
    layout.write(tmp_path / "ckpt", {"first": np.zeros(2, np.float32)})
    again = Twins()
    status = tf.train.Checkpoint(model=again).restore(str(tmp_path / "ckpt"))
    status.assert_existing_objects_matched()
    assert (again.a.numpy().tolist(), again.b[0].numpy().tolist()) == ([0, 0], [3, 4])


@pytest.mark.parametrize(
    "wrong",
    [None, np.zeros(3, np.float32), np.zeros(2, np.float64)],
    ids=["missing", "shape", "dtype"],
)
def test_a_value_that_does_not_fit(tmp_path, wrong):
    layout = Twins().layout()
    values = arrays_of(layout)
    del values["model/same"]
    if wrong is not None:
        values["model/same"] = wrong
    with pytest.raises(ValueError, match=r"no value that fits for model/same$"):
        Store(tmp_path).write(1, {}, values, layout)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_the_pointer_names_the_newest_even_after_a_move(tmp_path, layout):
    store = Store(tmp_path / "a", keep=2)
    for step in (9, 10, 11, 3, 3):
        store.write(step, {}, small(step), layout)
        newest = tf.train.latest_checkpoint(str(tmp_path / "a"))
        assert newest == str(tmp_path / "a" / f"ckpt-{step}" / "ckpt")
    store.close()
    (tmp_path / "a").rename(tmp_path / "b")
    newest = tf.train.latest_checkpoint(str(tmp_path / "b"))
    assert newest == str(tmp_path / "b" / "ckpt-3" / "ckpt")
    stored = Store(tmp_path / "b").newest()
    assert stored is not None
    assert {name: (a.dtype, a.tolist()) for name, a in stored.arrays.items()} == {
        name: (a.dtype, a.tolist()) for name, a in small(3).items()
    }


@pytest.mark.parametrize("file", ["ckpt.index", "ckpt.data-00000-of-00001"])
def test_a_damaged_file_of_tensorflow_is_passed_over(tmp_path, layout, caplog, file):
    store = Store(tmp_path)
    for step in (1, 2):
        store.write(step, {}, small(step), layout)
    path = tmp_path / "ckpt-2" / file
    content = path.read_bytes()
    rng = np.random.RandomState(1)
    damaged = [content[:size] for size in rng.choice(len(content), 10)]
    for bit in rng.choice(len(content) * 8, 10):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        damaged.append(bytes(flipped))
    for data in damaged:
        path.write_bytes(data)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "tfrun"):
            stored = store.newest()
        assert stored is not None
        assert (stored.step, stored.arrays["model/v"][0]) == (1, 1)
        assert str(path) in caplog.text


def test_a_disk_that_is_full_while_tensorflow_writes(tmp_path, layout):
    if os.geteuid() != 0:
        pytest.skip("ONLY ROOT can mount a small disk: a full one is NOT TESTED")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        store = Store(disk, keep=1)
        store.write(1, {}, small(1), layout)
        failures, newest = 0, 1
        ballast = disk / "ballast"
        for step, free in enumerate(range(10), 2):  # it is full at another place each time
            space = os.statvfs(disk)
            ballast.write_bytes(bytes((space.f_bavail - free) * space.f_bsize))
            try:
                store.write(step, {}, small(step), layout)
                newest = step
            except TfrunError as error:
                assert "No space left on device" in str(error)
                failures += 1
            ballast.unlink()
            names = {path.name for path in disk.iterdir()}
            assert names == {".lock", "checkpoint", f"ckpt-{newest}"}
            stored = store.newest()
            assert stored is not None
            assert (stored.step, stored.arrays["model/v"][0]) == (newest, newest)
        assert failures > 5
        assert newest == 11
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
