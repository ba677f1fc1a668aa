"""Custom training loops, checkpoints and checks across workers; results by name."""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings

import keras
import numpy as np
import tensorflow as tf

from tfrun.engine import tensorflow_collectives
from tfrun.engine.sync_check import check_in_sync
from tfrun.job.errors import TfrunError
from tfrun.job.settings import settings

with warnings.catch_warnings(record=True) as CAUGHT:
    warnings.simplefilter("always")
    ways = tf.distribute.experimental.CommunicationImplementation
    strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy(
        communication=ways.AUTO if settings().communication == "host" else ways.NCCL
    )
RANK, WORKERS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rng = np.random.RandomState(0)
X = rng.rand(48, 6).astype("float32")
Y = X.sum(axis=1, keepdims=True)
CASES = {}
keras.utils.set_random_seed(7)  # layers draw their seeds when they are made


def case(function):
    CASES[function.__name__] = function
    return function


def build(*layers, optimizer=None):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
        opt = optimizer() if optimizer else keras.optimizers.SGD(0.05, momentum=0.9)
    return model, opt


def weights(model, optimizer):
    values = [
        v.numpy().astype("float64").tolist() for v in [*model.variables, *optimizer.variables]
    ]
    return values


def batches():
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(12)
    return strategy.experimental_distribute_dataset(data)


def step_function(model, optimizer, batch=12):
    def step(data):
        x, y = data
        with tf.GradientTape() as tape:
            each = tf.square(model(x, training=True) - y)
            loss = tf.nn.compute_average_loss(each, global_batch_size=batch)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return step


@case
def keras_custom_loop():
    model, optimizer = build(keras.layers.Dense(4, activation="tanh"))
    step = step_function(model, optimizer)

    @tf.function
    def train(data):
        return strategy.reduce("SUM", strategy.run(step, args=(data,)), axis=None)

    losses = [float(train(data)) for _ in range(3) for data in batches()]
    return {"losses": losses, "weights": weights(model, optimizer)}


@case
def loop_in_the_function():
    model, optimizer = build(keras.layers.Dense(4, activation="tanh"))
    step = step_function(model, optimizer)

    @tf.function
    def train(iterator):
        total = 0.0
        for _ in range(3):
            total += strategy.reduce("SUM", strategy.run(step, args=(next(iterator),)), axis=None)
        return total

    iterator = iter(batches())
    return {"total": float(train(iterator)), "weights": weights(model, optimizer)}


@case
def loop_in_the_graph():
    model, optimizer = build(keras.layers.Dense(4, activation="tanh"))
    step = step_function(model, optimizer)

    @tf.function
    def train(iterator):
        for _ in tf.range(3):
            strategy.run(step, args=(next(iterator),))

    iterator = iter(batches())
    train(iterator)
    return weights(model, optimizer)


@case
def step_is_a_function_of_its_own():
    # The layer state of a nested function is averaged although only its first call traces it.
    model, optimizer = build(keras.layers.BatchNormalization())
    step = tf.function(step_function(model, optimizer))
    for data in batches():
        strategy.run(step, args=(data,))
    state = weights(model, optimizer)
    check_in_sync([(v.path, v) for v in model.variables])
    return {"same": state}


@case
def a_dead_model_and_another_garbage_collector():
    # What one worker has collected and another has not must not change what they reduce.
    step_is_a_function_of_its_own()
    if RANK:
        gc.collect()
    else:
        gc.disable()
    model, optimizer = build(keras.layers.BatchNormalization())
    step = step_function(model, optimizer)
    train = tf.function(lambda data: strategy.run(step, args=(data,)))
    for data in batches():
        train(data)
    gc.enable()
    return {"same": weights(model, optimizer)}


@case
def eager_steps():
    model, optimizer = build(keras.layers.Dense(4, activation="tanh"))
    step = step_function(model, optimizer)
    for data in batches():
        strategy.run(step, args=(data,))
    return weights(model, optimizer)


@case
def forward_in_a_function_of_its_own():
    model, optimizer = build(keras.layers.BatchNormalization())

    @tf.function
    def forward(x):
        return model(x, training=True)

    def step(data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(forward(x) - y)) / WORKERS
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    first, second = (tf.function(lambda data: strategy.run(step, args=(data,))) for _ in range(2))
    for function in (first, second):
        for data in batches():
            function(data)
        check_in_sync([(v.path, v) for v in model.variables])
    return {"same": weights(model, optimizer)}


@case
def optimizer_in_a_condition():
    model, optimizer = build()

    def step(data, update):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y)) / WORKERS
        gradients = tape.gradient(loss, model.trainable_variables)
        if update:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def train(data, update):
        strategy.run(step, args=(data, update))

    for i, data in enumerate(batches()):
        train(data, tf.constant(i % 2 == 0))
    return weights(model, optimizer)


@case
def apply_across_replicas():
    model, optimizer = build()
    with strategy.scope():
        optimizer.build(model.trainable_variables)

    def gradients_of(data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y)) / WORKERS
        return tape.gradient(loss, model.trainable_variables)

    @tf.function
    def train(data):
        local = strategy.run(gradients_of, args=(data,))
        summed = [strategy.reduce("SUM", g, axis=None) for g in local]
        optimizer.apply_gradients(zip(summed, model.trainable_variables, strict=True))

    with strategy.scope():
        for data in batches():
            train(data)
    return weights(model, optimizer)


@case
def two_optimizers():
    # As a GAN has it: each update averages the layer state of its own half of the step.
    generator, g_optimizer = build(keras.layers.BatchNormalization())
    critic, c_optimizer = build(keras.layers.BatchNormalization(), optimizer=keras.optimizers.Adam)
    g_step, c_step = step_function(generator, g_optimizer), step_function(critic, c_optimizer)

    @tf.function
    def train(data):
        def both(data):
            g_step(data)
            c_step(data)

        strategy.run(both, args=(data,))

    for data in batches():
        train(data)
        check_in_sync([(v.path, v) for v in [*generator.variables, *critic.variables]])
    return {"same": [weights(generator, g_optimizer), weights(critic, c_optimizer)]}


@case
def layer_state_without_an_optimizer():
    model, _ = build(keras.layers.BatchNormalization())

    @tf.function
    def look(data):
        strategy.run(lambda x, y: model(x, training=True), args=data)

    for data in batches():
        look(data)
        check_in_sync([(v.path, v) for v in model.variables])
    return {"same": [v.numpy().tolist() for v in model.variables]}


@case
def datasets_from_function():
    def make(context):
        shard = tf.data.Dataset.from_tensor_slices((X, Y))
        shard = shard.shard(context.num_input_pipelines, context.input_pipeline_id)
        return shard.batch(context.get_per_replica_batch_size(12))

    sums = []
    for x, _ in strategy.distribute_datasets_from_function(make):
        local = strategy.experimental_local_results(x)
        assert len(local) == 1
        sums.append(float(strategy.reduce("SUM", tf.reduce_sum(local[0]), axis=None)))
    return {"total": sum(sums)}


@case
def reduce_and_gather():
    def value(context):
        return tf.constant([[float(context.replica_id_in_sync_group)]])

    mine = strategy.experimental_distribute_values_from_function(value)
    gathered = strategy.gather(mine, axis=0).numpy().ravel().tolist()
    batch = tf.reshape(tf.range(6.0), [3, 2])
    return {
        "gathered": gathered == [float(r) for r in range(WORKERS)],
        "sum": strategy.reduce("SUM", mine, axis=None).numpy().item() == sum(range(WORKERS)),
        "mean along an axis": strategy.reduce("MEAN", batch, axis=0).numpy().tolist(),
    }


@case
def checkpoint():
    model, optimizer = build(keras.layers.BatchNormalization())
    step = tf.function(step_function(model, optimizer))
    for data in batches():
        strategy.run(step, args=(data,))
    before = weights(model, optimizer)
    folder = os.path.join(os.path.dirname(os.environ["TFRUN_TEST_OUT"]), f"ckpt-{RANK}")  # noqa: PTH118, PTH120
    saved = tf.train.Checkpoint(model=model, optimizer=optimizer)
    manager = tf.train.CheckpointManager(saved, folder, max_to_keep=1)
    manager.save()
    for data in batches():
        strategy.run(step, args=(data,))
    assert weights(model, optimizer) != before
    saved.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    return {"restored": weights(model, optimizer) == before}


@case
def differing_variable_is_named():
    model, _ = build(keras.layers.Dense(2, name="first"), keras.layers.Dense(2, name="second"))
    check_in_sync([(v.path, v) for v in model.variables])
    second = model.layers[1].bias.value
    strategy.experimental_local_results(second)[0].assign([0.0, float(RANK == WORKERS - 1)])
    try:
        check_in_sync([(v.path, v) for v in model.variables])
    except TfrunError as error:
        assert error.code == "TFRUN-504"
        return {"text": str(error) if WORKERS > 1 else ""}
    return {"text": ""}


@case
def nccl_falls_back():
    chosen = strategy.extended._communication_options
    # One worker whose NCCL fails must not leave the others with it.
    again = tensorflow_collectives.settle(strategy, probe=lambda _: RANK != WORKERS - 1)
    return {
        "implementation": [chosen.implementation.value, again.value],
        "bytes_per_pack": chosen.bytes_per_pack,
        "warnings": [str(w.message) for w in CAUGHT if "NCCL" in str(w.message)],
    }


def main() -> None:
    chosen = sys.argv[1:] or os.environ.get("TEST_CASES", "").split()
    results = {}
    for name, function in CASES.items():
        if chosen and name not in chosen:
            continue
        results[name] = function()
    with open(os.environ["TFRUN_TEST_OUT"], "w") as file:  # noqa: PTH123
        json.dump(results, file)


main()
