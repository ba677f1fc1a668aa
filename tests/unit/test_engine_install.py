"""What `install` replaces, and what it must not do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tfrun.patches import versions_fit
from tfrun.patches.engine_repairs import try_each

CODE = """
import warnings
import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as private
from tensorflow.python.eager import context
from tfrun.patches.engine_repairs import install

names = {
    "tf.distribute": tf.distribute.MultiWorkerMirroredStrategy,
    "experimental": tf.distribute.experimental.MultiWorkerMirroredStrategy,
    "compat": tf.compat.v2.distribute.MultiWorkerMirroredStrategy,
    "compat experimental": tf.compat.v2.distribute.experimental.MultiWorkerMirroredStrategy,
    "private": private.CollectiveAllReduceStrategy,
}
install()
from keras.src.optimizers.base_optimizer import BaseOptimizer
once = BaseOptimizer.apply
install()
assert BaseOptimizer.apply is once, "installed twice"
import keras
import tfrun.patches.keras_methods
from tfrun.patches import versions_fit as fits
tfrun.patches.keras_methods.install()
fits.check()
theirs = keras.Model.fit.__wrapped__
def fit(self, x=None, *, shuffle="of a newer Keras", **more): ...
keras.Model.fit.__wrapped__ = fit
fits.check()
def fit(self, x, of_a_newer_keras=None): ...
keras.Variable.assign.__wrapped__ = fit
try:
    fits.check()
except TypeError as error:
    assert "takes (self, x, of_a_newer_keras)" in str(error), error
else:
    raise AssertionError("a function that does not fit was taken")
finally:
    keras.Model.fit.__wrapped__ = theirs
assert context.context()._context_handle is None, "an op was executed: fork is no longer safe"

from tfrun.engine.multi_worker import MultiWorkerMirrored
Implementation = tf.distribute.experimental.CommunicationImplementation
warnings.simplefilter("error")
for name, public in names.items():
    strategy = public()
    assert isinstance(strategy, MultiWorkerMirrored), name
    assert isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy), name
    assert isinstance(strategy, tf.distribute.experimental.MultiWorkerMirroredStrategy), name
    assert type(strategy.extended).__name__ == "MultiWorkerExtended", name
for old in (names["experimental"], names["compat experimental"]):
    strategy = old(Implementation.RING)
    assert strategy.extended._communication_options.implementation == Implementation.RING
    assert old(communication=Implementation.RING).num_replicas_in_sync == 1

options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=5)
strategy = names["tf.distribute"](communication_options=options)
assert strategy.extended._communication_options.bytes_per_pack == 5
assert not isinstance(tf.distribute.get_strategy(), MultiWorkerMirrored)
"""


def test_what_is_replaced_fits_and_every_name_gives_the_repaired_strategy() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG",)}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**environment, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_has_no_place_is_done_without(capfd: pytest.CaptureFixture) -> None:
    done = []

    def repair() -> None:
        raise AttributeError("module 'keras' has no attribute 'gone'")

    try_each(repair, lambda: done.append("another"))
    assert done == ["another"]
    assert "done without" in (told := capfd.readouterr().err) and "'gone'" in told


def given(x, y=1): ...


@pytest.mark.parametrize(
    ("ours", "good"),
    [
        (given, True),
        (lambda x, y: ..., False),  # it may be called without y
        (lambda x: ..., False),
        (lambda y=1, x=2: ..., False),
        (lambda x, **others: ..., False),  # it may be called with y in its place
        (lambda *all, **others: ..., True),
        (lambda x, *rest, **others: ..., True),
        (lambda x, y=1, z=2: ..., True),
        (lambda x, y=1, *, z: ..., False),
    ],
)
def test_a_function_stands_for_another_if_it_takes_all_that_it_is_called_with(ours, good) -> None:
    assert versions_fit.fits(ours, given) == good
