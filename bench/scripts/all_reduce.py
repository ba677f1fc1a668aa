"""Milliseconds of a tf.function with an all-reduce of 100 MB in 160 tensors in it.

With the argument "alone" the same without the all-reduce.
"""

import sys
import time

import numpy as np
import pinned
import tensorflow as tf

TENSORS, BYTES, CALLS = 160, 100 << 20, 12
REDUCES = "alone" not in sys.argv
strategy = tf.distribute.MultiWorkerMirroredStrategy()
sizes = np.random.default_rng(0).dirichlet(np.ones(TENSORS)) * BYTES / 4
with strategy.scope():
    values = [tf.Variable(tf.ones([max(1, int(size))])) for size in sizes]


@tf.function
def step():
    def replica():
        gradients = [value * 1.5 for value in values]
        if REDUCES:
            gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        return tf.add_n([tf.reduce_sum(tensor) for tensor in gradients])

    return strategy.run(replica)


times = []
for _ in range(CALLS):
    start = time.perf_counter()
    step().numpy()
    times.append((time.perf_counter() - start) * 1000)
pinned.write(times[3:])
