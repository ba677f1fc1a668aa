"""Examples a second on parameter servers: `fit` or an own loop, with either Keras."""

import os
import sys
import time

import numpy as np
import tensorflow as tf

if sys.argv[1] == "legacy":
    import tf_keras as keras
else:
    import keras

HOW, WHAT = sys.argv[2:]  # fit or loop; cnn or recommender
ROWS, SIZE, KEPT = 1_000_000, 32, 100_000
BATCH = 64 if WHAT == "cnn" else 512
STEPS, EPOCHS = 300, 2  # and one epoch before, in which the tables' pages are touched first

role = os.environ.get("BENCH_ROLE")
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if role:
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
        start=True,
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(
    resolver,
    variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(
        4 << 20, max_shards=resolver.cluster_spec().num_tasks("ps")
    ),
)
drawn = np.random.default_rng(0)


def cnn():
    import cnn as seed

    return seed.compiled(keras)


def towers():
    user, item = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    one = keras.layers.Embedding(ROWS, SIZE)(user)
    other = keras.layers.Embedding(ROWS, SIZE)(item)
    model = keras.Model([user, item], keras.layers.Dense(1)(keras.layers.Dot(1)([one, other])))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adagrad(0.3), loss)
    return model


def samples():
    if WHAT == "cnn":
        x = drawn.random((6400, 28, 28, 1), np.float32)
        return x, drawn.integers(0, 10, 6400)
    ids = tuple(drawn.integers(0, ROWS, KEPT).astype("int32") for _ in range(2))
    return ids, drawn.integers(0, 2, KEPT).astype("float32")


def dataset(context=None):
    return tf.data.Dataset.from_tensor_slices(samples()).repeat().batch(BATCH).prefetch(2)


with strategy.scope():
    model = cnn() if WHAT == "cnn" else towers()
rates = []


class Clock(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        if epoch:
            rates.append(STEPS * BATCH / (time.perf_counter() - self.start))


def fit():
    data = dataset
    if sys.argv[1] == "legacy":
        data = keras.utils.experimental.DatasetCreator(dataset)
    model.fit(data, epochs=1 + EPOCHS, steps_per_epoch=STEPS, verbose=0, callbacks=[Clock()])


def loop():
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)
        # What `fit` keeps, too.
        seen = keras.metrics.Mean()
        right = keras.metrics.SparseCategoricalAccuracy() if WHAT == "cnn" else None
        kept = [metric for metric in (seen, right) if metric is not None]

    @tf.function
    def step(iterator):
        def on_replica(batch):
            x, y = batch
            with tf.GradientTape() as tape:
                found = model(x, training=True)
                loss = model.compute_loss(x, y, found, None)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            seen.update_state(loss)
            if right is not None:
                right.update_state(y, found)

        strategy.run(on_replica, args=(next(iterator),))

    for _ in range(1 + EPOCHS):
        start = time.perf_counter()
        for metric in kept:
            metric.reset_state()
        for _ in range(STEPS):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        for metric in kept:
            metric.result().numpy()
        rates.append(STEPS * BATCH / (time.perf_counter() - start))
    rates.pop(0)


fit() if HOW == "fit" else loop()
import json  # noqa: E402
from pathlib import Path  # noqa: E402

Path(os.environ["BENCH_OUT"]).write_text(json.dumps(rates))
