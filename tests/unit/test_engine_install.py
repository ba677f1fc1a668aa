"""What `install` replaces, and what it must not do."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import warnings
import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as private
from tensorflow.python.eager import context
from tfrun.engine.install import install

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


def test_every_name_gives_the_repaired_strategy() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG",)}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**environment, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
