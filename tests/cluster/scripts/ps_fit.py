"""`fit`, `evaluate` and `predict` on parameter servers; results by name, errors too."""

from __future__ import annotations

import json
import os
import tempfile
import traceback
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tfrun
from tfrun.ps import server_step, variables

strategy = tfrun.strategy(
    variable_partitioner=tf.distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=1000, max_shards=2
    )
)
images, labels = load_digits(return_X_y=True)
# The last ones are of other writers: synchronous training reaches 0.94 of them, and 0.99 so.
order = np.random.RandomState(0).permutation(len(images))
images, labels = images[order], labels[order]
images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
x, y, x_val, y_val = images[:1500], labels[:1500], images[1500:], labels[1500:]
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def digits(layers=(), optimizer=None):
    """`optimizer` makes it, or is one."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                keras.layers.Conv2D(16, 3, activation="relu"),
                *[make() for make in layers],
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer() if callable(optimizer) else optimizer or keras.optimizers.Adam(0.003),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    return model


def iterations(model):
    return int(model.optimizer.iterations.numpy())


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch >= 4


@case
def learns():
    folder = tempfile.mkdtemp()
    model = digits([keras.layers.BatchNormalization, lambda: keras.layers.Dropout(0.1)])
    best = keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", save_best_only=True)
    early = keras.callbacks.EarlyStopping(patience=20)
    board = keras.callbacks.TensorBoard(f"{folder}/board")
    history = model.fit(
        x,
        y,
        batch_size=32,
        epochs=8,
        validation_data=(x_val, y_val),
        verbose=2,
        callbacks=[best, early, board],
    )
    logs, accuracy = history.history, model.evaluate(x_val, y_val, verbose=0)[1]
    predicted = model.predict(x_val, verbose=0).argmax(1)
    return {
        "keys": sorted(logs),
        "epochs": len(logs["loss"]),
        "accuracy": accuracy,
        "last": logs["val_accuracy"][-1],
        "predicted": float(np.mean(predicted == y_val)),
        "iterations": iterations(model),
        "saved": float(
            np.mean(
                keras.models.load_model(f"{folder}/best.keras")(x_val).numpy().argmax(1) == y_val
            )
        ),
        "board": any(path.is_file() for path in Path(folder, "board").rglob("*")),
        "moved": float(np.abs(model.layers[1].moving_mean.numpy()).sum()),
    }


class Counts(keras.callbacks.Callback):
    """Samples that the loss has seen, and the staleness of the steps, at an epoch's end."""

    def __init__(self):
        super().__init__()
        self.samples, self.batches = [], 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1

    def on_epoch_end(self, epoch, logs=None):
        self.samples.append(float(self.model._loss_tracker.count.numpy()))


@case
def counts_are_exact():
    counts = Counts()
    model = digits(optimizer=lambda: keras.optimizers.SGD(0.05, momentum=0.9))
    model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[counts])
    return {"iterations": iterations(model), "samples": counts.samples, "batches": counts.batches}


@case
def tf_data():
    counts = Counts()
    model = digits()
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(2000, seed=1).batch(32)
    model.fit(data, epochs=2, verbose=0, callbacks=[counts])
    numbers = tf.data.Dataset.range(30).map(lambda i: tf.cast(i, tf.float32)[None]).batch(3)
    with strategy.scope():
        same = keras.Sequential([keras.Input((1,)), keras.layers.Rescaling(1.0)])
    return {
        "iterations": iterations(model),
        "samples": counts.samples,
        "predicted": same.predict(numbers, verbose=0)[:, 0].tolist(),
        "first": same.predict(numbers.repeat(), steps=3, verbose=0)[:, 0].tolist(),
    }


@case
def dataset_function():
    def make(context):
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(2000).repeat().batch(32)
        return data.shard(context.num_input_pipelines, context.input_pipeline_id)

    counts = Counts()
    model = digits()
    model.fit(
        make,
        steps_per_epoch=20,
        epochs=2,
        verbose=0,
        callbacks=[counts],
        class_weight=dict.fromkeys(range(10), 1.0),
    )
    return {"iterations": iterations(model), "samples": counts.samples}


@case
def mapped_files():
    folder = Path(tempfile.mkdtemp())
    with tf.io.TFRecordWriter(str(folder / "a.tfrecord")) as file:
        for value in range(100):
            file.write(tf.io.serialize_tensor(tf.constant([float(value)])).numpy())

    def parse(record, seed):
        value = tf.ensure_shape(tf.io.parse_tensor(record, tf.float32), [1])
        noise = tf.random.stateless_uniform([1], seed) * 0.0
        return value + noise, value

    data = tfrun.Dataset.from_tfrecords(str(folder / "*"), parse, batch_size=8, shuffle=True)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")]
        )
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[keras.metrics.MeanAbsoluteError()])
    counts = Counts()
    history = model.fit(data, epochs=2, verbose=0, callbacks=[counts])
    predicted = model.predict(data, verbose=0)
    return {
        "samples": counts.samples,
        "loss": history.history["loss"],
        "sum": float(predicted.sum()),
    }


@case
def stops():
    model = digits()
    history = model.fit(x, y, batch_size=32, epochs=5, verbose=0, callbacks=[Stop()])
    return {"epochs": len(history.epoch), "iterations": iterations(model)}


@case
def synchronous():
    """K = 0 is one worker after the other: the numbers of one process."""
    strategy.max_staleness = 0
    try:
        remote = digits(optimizer=lambda: keras.optimizers.Adam(0.003, clipnorm=1.0))
        before = [np.array(w) for w in remote.get_weights()]
        remote_logs = remote.fit(x, y, batch_size=48, epochs=2, shuffle=False, verbose=0).history
    finally:
        strategy.max_staleness = None
    model = keras.models.clone_model(remote)
    model._distribute_strategy = None
    model.set_weights(before)
    model.compile(
        keras.optimizers.Adam(0.003, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    logs = model.fit(
        tf.data.Dataset.from_tensor_slices((x, y)).batch(48), epochs=2, verbose=0
    ).history
    pairs = zip(remote.get_weights(), model.get_weights(), strict=True)
    return {
        "weights": max(float(np.abs(a - b).max()) for a, b in pairs),
        "logs": max(abs(a - b) for k in logs for a, b in zip(logs[k], remote_logs[k], strict=True)),
    }


def staleness(model):
    return (
        next(iter(model._tfrun_workspaces.values()))
        .ledger.read()[1 : 1 + server_step.STALENESS]
        .tolist()
    )


@case
def staleness_is_bounded():
    found = {}
    for bound in (0, 1, 3, None):
        strategy.max_staleness = bound
        model = digits()
        model.fit(x, y, batch_size=16, epochs=1, verbose=0)
        histogram = staleness(model)
        found[str(bound)] = {
            "steps": sum(histogram),
            "worst": max(i for i, count in enumerate(histogram) if count),
        }
    strategy.max_staleness = None
    return found


def tables(optimizer, size=500):
    """A model whose table is sharded, and the same in this process with dense gradients."""
    made = []
    for scope in (strategy.scope(), tf.distribute.get_strategy().scope()):
        keras.utils.set_random_seed(3)
        with scope:
            inputs = keras.Input((3,), dtype="int32")
            table = keras.layers.Embedding(size, 4, name="table")
            model = keras.Model(
                inputs, keras.layers.Dense(1)(keras.layers.Flatten()(table(inputs)))
            )
            model.compile(optimizer(), "mse")
        made.append(model)
    remote, local = made
    local.set_weights([tf.convert_to_tensor(w).numpy() for w in remote.weights])
    return remote, local


def train_densely(model, ids, target):
    """Two epochs with gradients of whole tables, in which rows that occur twice are summed."""
    for start in [*range(0, len(ids), 32)] * 2:
        rows = slice(start, start + 32)
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(model(ids[rows]) - target[rows]))
        gradients = tape.gradient(error, model.trainable_variables)
        dense = [tf.convert_to_tensor(g) for g in gradients]
        model.optimizer.apply_gradients(zip(dense, model.trainable_variables, strict=True))
    model.optimizer.finalize_variable_values(model.trainable_variables)


@case
def rows_only():
    ids = np.random.RandomState(0).randint(0, 200, (96, 3))
    target = np.ones((96, 1), np.float32)
    result = {}
    kinds = {
        "SGD": lambda: keras.optimizers.SGD(0.1),
        "Adagrad": lambda: keras.optimizers.Adagrad(0.1),
    }
    strategy.max_staleness = 0
    for name, optimizer in kinds.items():
        remote, local = tables(optimizer)
        remote.fit(ids, target, batch_size=32, epochs=2, shuffle=False, verbose=0)
        train_densely(local, ids, target)
        weights = zip(remote.weights, local.weights, strict=True)
        result[name] = max(
            float(np.abs(tf.convert_to_tensor(a).numpy() - b.numpy()).max()) for a, b in weights
        )
    remote, _ = tables(lambda: keras.optimizers.Adam(0.1))
    before = tf.convert_to_tensor(remote.weights[0]).numpy()
    remote.fit(ids, target, batch_size=32, epochs=1, verbose=0)
    strategy.max_staleness = None
    after = tf.convert_to_tensor(remote.weights[0]).numpy()
    slots = {v.path: v for v in remote.optimizer.variables if v.shape.rank == 2}
    places = [
        [part.device for part in variables.parts(v)]
        for v in [remote.weights[0], *(v for p, v in slots.items() if "table" in p)]
    ]
    untouched = np.setdiff1d(np.arange(500), ids)
    return {
        **result,
        "untouched": bool((before[untouched] == after[untouched]).all()),
        "touched": bool((before[np.unique(ids)] != after[np.unique(ids)]).any(1).all()),
        "shards": len(places[0]),
        "beside": all(place == places[0] for place in places),
    }


@case
def averages_and_norms():
    """What changes more of a table than the rows that a step has read."""
    target = np.ones((96, 1), np.float32)
    result = {}
    strategy.max_staleness = 0
    average = {"use_ema": True, "ema_momentum": 0.5}
    for name, size, optimizer in (
        ("ema", 500, lambda: keras.optimizers.SGD(0.1, **average)),
        (
            "ema and global_clipnorm",
            40,
            lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1, **average),
        ),
        ("lamb", 40, lambda: keras.optimizers.Lamb(0.01)),
        ("adafactor", 40, lambda: keras.optimizers.Adafactor(0.01)),
        ("lamb in shards", 500, lambda: keras.optimizers.Lamb(0.01)),
    ):
        ids = np.random.RandomState(0).randint(0, size // 2, (96, 3))
        remote, local = tables(optimizer, size)
        try:
            remote.fit(ids, target, batch_size=32, epochs=2, shuffle=False, verbose=0)
        except tfrun.TfrunError as error:
            result[name] = error.code
            continue
        train_densely(local, ids, target)
        pairs = zip(remote.weights, local.weights, strict=True)
        result[name] = max(
            float(np.abs(tf.convert_to_tensor(a).numpy() - b.numpy()).max()) for a, b in pairs
        )
    strategy.max_staleness = None
    return result


@case
def one_batch():
    """Data that is less than a batch, in several outputs; and the same in several batches."""
    rows = np.random.RandomState(0).rand(7, 3).astype("float32")
    found = {}
    for name, arrange in (
        ("one", lambda a, b: a),
        ("list", lambda a, b: [a, b]),
        ("dict", lambda a, b: {"a": a, "b": b}),
    ):
        with strategy.scope():
            inputs = keras.Input((3,))
            a, b = keras.layers.Dense(1, name="a")(inputs), keras.layers.Dense(2, name="b")(inputs)
            model = keras.Model(inputs, arrange(a, b))
            model.compile("sgd", "mse")
        want = keras.tree.map_structure(np.asarray, model(rows))
        found[name] = [
            keras.tree.map_structure(
                lambda x, y: bool(x.shape == y.shape and np.allclose(x, y)),
                model.predict(given, verbose=0, **options),
                want,
            )
            for given, options in (
                (rows, {}),
                (rows, {"batch_size": 2}),
                (tf.data.Dataset.from_tensor_slices(rows).batch(8), {}),
            )
        ]
        found[name] += [model.predict(rows[:1], verbose=0)["a"].shape] if name == "dict" else []
    return found


@case
def two_optimizers():
    """Those that Keras does not know of make their slots while the first step is traced."""

    class Two(keras.Model):
        def __init__(self):
            super().__init__()
            self.a, self.b = keras.layers.Dense(1), keras.layers.Dense(1)

        def build(self, shape):
            self.a.build(shape)
            self.b.build(shape)
            self.built = True

        def call(self, x):
            return self.a(x) + self.b(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                error = tf.reduce_mean(tf.square(self(x) - y))
            parts = (self.a.trainable_variables, self.b.trainable_variables)
            gradients = tape.gradient(error, parts)
            for optimizer, g, v in zip(self.optimizers, gradients, parts, strict=True):
                optimizer.apply_gradients(zip(g, v, strict=True))
            return {"error": error}

    rows = np.random.RandomState(0).rand(64, 3).astype("float32")
    target = rows.sum(axis=1, keepdims=True)
    made = []
    strategy.max_staleness = 0
    for scope in (strategy.scope(), tf.distribute.get_strategy().scope()):
        with scope:
            model = Two()
            model.build((None, 3))
            model.compile()
            model.optimizers = [keras.optimizers.SGD(0.1, momentum=0.9), keras.optimizers.Adam(0.1)]
        made.append(model)
    made[1].set_weights([w.numpy() for w in made[0].weights])
    for model in made:
        model.fit(rows, target, batch_size=16, epochs=2, shuffle=False, verbose=0)
    strategy.max_staleness = None
    pairs = zip(*(model.weights for model in made), strict=True)
    return {
        "off": max(float(np.abs(a.numpy() - b.numpy()).max()) for a, b in pairs),
        "iterations": [int(o.iterations.numpy()) for o in made[0].optimizers],
    }


@case
def wrong_data():
    class Sequence(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return x[:8], y[:8]

    def generator():
        yield x[:8], y[:8]

    signature = (tf.TensorSpec([8, 8, 8, 1]), tf.TensorSpec([8], tf.int64))
    python = tf.data.Dataset.from_generator(generator, output_signature=signature)
    endless = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat()
    stated = {"steps_per_epoch": 2}
    found = []
    for data, steps in (
        (generator(), {}),
        (Sequence(), {}),
        (python, {}),
        (lambda: tf.data.Dataset.from_generator(generator, output_signature=signature), stated),
        (lambda: python, stated),
        (endless, {}),
        (lambda: endless, {}),
    ):
        try:
            digits().fit(data, verbose=0, **steps)
            found.append(None)
        except tfrun.TfrunError as error:
            found.append(error.code)
    for options in (
        {"gradient_accumulation_steps": 2},
        {"use_ema": True, "ema_overwrite_frequency": 2},
    ):
        try:
            with strategy.scope():
                optimizer = keras.optimizers.SGD(0.1, **options)
            digits(optimizer=optimizer).fit(x, y, verbose=0)
            found.append(None)
        except tfrun.TfrunError as error:
            found.append(error.code)
    for optimizer in (
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
        lambda: keras.optimizers.SGD(0.1, loss_scale_factor=8.0),
    ):
        try:
            digits(optimizer=optimizer).fit(x, y, verbose=0)
            found.append(None)
        except tfrun.TfrunError as error:
            found.append(error.code)
    return found


@case
def nothing():
    """What calls say of data without a batch; what is validated with it is a warning."""
    none, model, found = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).take(0), digits(), []
    for call in (model.fit, model.evaluate, model.predict):
        try:
            call(none, verbose=0)
            found.append(None)
        except tfrun.TfrunError as error:
            found.append(error.code)
    found.append(sorted(model.fit(x[:32], y[:32], verbose=0, validation_data=none).history))
    return found


@case
def own_loop():
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        seen = keras.metrics.Sum()

    def make():
        return tf.data.Dataset.from_tensors(tf.ones([8, 4])).repeat()

    iterator = iter(coordinator.create_per_worker_dataset(make))

    @tf.function
    def step(iterator):
        def on_replica(batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(batch) - 1.0))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            seen.update_state(8.0)
            return loss

        return strategy.run(on_replica, args=(next(iterator),))

    losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(60)]
    coordinator.join()
    return {
        "iterations": int(optimizer.iterations.numpy()),
        "samples": float(seen.result()),
        "loss": float(coordinator.fetch(losses[-1])),
    }


def main() -> None:
    results = {}
    for name in os.environ.get("TEST_CASES", "").split() or CASES:
        try:
            results[name] = CASES[name]()
        except Exception:
            results[name] = {"error": traceback.format_exc()[-3000:]}
        print(name, json.dumps(results[name]), flush=True)
    if out := os.environ.get("TEST_OUT"):
        Path(out).write_text(json.dumps(results))


main()
