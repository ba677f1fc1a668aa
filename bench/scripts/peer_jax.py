"""Milliseconds a step of Keras 3's `fit` on JAX, its processes' CPU collectives by gloo, by epoch.

    peer_jax.py WORKLOAD

TF_CONFIG tells the processes of each other, as it does the others.
"""

import json
import os
import sys

import clock
import pinned
import quantities
import workloads
from workloads import EPOCHS, PER_WORKER, STEPS

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
import jax

config = json.loads(os.environ["TF_CONFIG"])
addresses = config["cluster"]["worker"]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(addresses[0], len(addresses), config["task"]["index"])
import keras  # noqa: E402
import numpy as np  # noqa: E402

name = sys.argv[1]
keras.utils.set_random_seed(7)  # JAX wants the same weights everywhere
if len(addresses) > 1:
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
model = workloads.compiled(keras, name)
inputs, labels = workloads.samples(name)
batch, order = PER_WORKER[name], np.random.default_rng(pinned.RANK)
parts = inputs if isinstance(inputs, tuple) else (inputs,)


class Batches(keras.utils.PyDataset):
    """This worker's own part of each global batch."""

    def __len__(self):
        return STEPS[name]

    def __getitem__(self, index):
        rows = order.integers(0, len(labels), batch)
        found = tuple(part[rows] for part in parts)
        return (found if len(found) > 1 else found[0]), labels[rows]


model.fit(Batches(), epochs=1, steps_per_epoch=1, verbose=0)
quantities.first_step()
timed = clock.of(keras, STEPS[name])
model.fit(Batches(), epochs=EPOCHS, verbose=0, callbacks=[timed])
pinned.write(timed.times[1:])
