"""Every way of using Keras 3 across workers; each case's numbers go to the test by its name.

The cases use the same global batches on any number of workers, so the test can hold two and
three workers' numbers against one worker's.
"""

from __future__ import annotations

import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from tfrun.job.errors import TfrunError

strategy = tf.distribute.MultiWorkerMirroredStrategy()
WORKERS = strategy.num_replicas_in_sync
BATCH = 12
rng = np.random.RandomState(0)
X = rng.rand(60, 6).astype("float32")
Y = (X.sum(axis=1) * 2).astype("int32") % 3
SHORT = 53  # the last of its batches of 12 has 5 samples
TINY = 49  # the last batch has 1 sample: less than workers

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def weights(model):
    state = [*model.variables, *(model.optimizer.variables if model.optimizer else [])]
    return {v.path: v.numpy().astype("float64").tolist() for v in state}


def small(*, optimizer=None, layers=(), **compile_options):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, activation="tanh"),
                *layers,
                keras.layers.Dense(3),
            ]
        )
        model.compile(
            optimizer=optimizer() if optimizer else keras.optimizers.SGD(0.1),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **compile_options,
        )
    return model


def fitted(model, *args, epochs=2, **options):
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, **options}
    if isinstance(args[0], (tf.data.Dataset, keras.utils.PyDataset)):
        options.pop("batch_size")
    history = model.fit(*args, epochs=epochs, **options).history
    return {"history": history, "weights": weights(model)}


def dataset(n=60, batch=BATCH):
    return tf.data.Dataset.from_tensor_slices((X[:n], Y[:n])).batch(batch)


@case
def arrays():
    return fitted(small(), X, Y, validation_data=(X[:31], Y[:31]))


@case
def arrays_short_batch():
    return fitted(small(), X[:SHORT], Y[:SHORT], epochs=3)


@case
def arrays_fewer_samples_than_workers():
    return fitted(small(), X[:TINY], Y[:TINY], epochs=3)


@case
def data_set():
    return fitted(small(), dataset(SHORT), validation_data=dataset(31))


@case
def data_set_repeated():
    return fitted(small(), dataset().repeat(), steps_per_epoch=4, validation_split=0.0)


@case
def data_set_with_steps():
    data = dataset().repeat()
    return fitted(small(), data, steps_per_epoch=3, validation_data=data, validation_steps=2)


@case
def shuffled_arrays():
    # Which order is drawn may not matter to one epoch's first loss: every sample once.
    model = small(optimizer=lambda: keras.optimizers.SGD(0.0))
    return model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0).history


@case
def class_weight():
    return fitted(small(), X[:SHORT], Y[:SHORT], class_weight={0: 1.0, 1: 2.0, 2: 0.5})


@case
def sample_weight():
    return fitted(small(), X[:SHORT], Y[:SHORT], sample_weight=np.linspace(0.1, 2, SHORT))


@case
def steps_per_execution():
    return fitted(small(steps_per_execution=3), X[:SHORT], Y[:SHORT])


@case
def dict_inputs_and_several_outputs():
    keras.utils.set_random_seed(3)
    with strategy.scope():
        a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
        hidden = keras.layers.Dense(5, activation="relu")(keras.layers.Concatenate()([a, b]))
        outputs = {
            "kind": keras.layers.Dense(3, name="kind")(hidden),
            "sum": keras.layers.Dense(1, name="sum")(hidden),
        }
        model = keras.Model({"a": a, "b": b}, outputs)
        model.compile(
            optimizer=keras.optimizers.SGD(0.1),
            loss={
                "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                "sum": "mse",
            },
            metrics={"kind": ["accuracy"], "sum": ["mae"]},
        )
    x = {"a": X[:SHORT, :3], "b": X[:SHORT, 3:]}
    y = {"kind": Y[:SHORT], "sum": X[:SHORT].sum(axis=1, keepdims=True)}
    result = fitted(model, x, y)
    predicted = model.predict(x, batch_size=BATCH, verbose=0)
    return {**result, "predicted": {k: v.tolist() for k, v in predicted.items()}}


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        part = slice(index * BATCH, min((index + 1) * BATCH, SHORT))
        return X[part], Y[part]


@case
def py_dataset():
    return fitted(small(), Batches())


@case
def evaluate_and_predict():
    model = small()
    result = {
        "evaluate": model.evaluate(X[:SHORT], Y[:SHORT], batch_size=BATCH, verbose=0),
        "tiny": model.evaluate(X[:TINY], Y[:TINY], batch_size=BATCH, verbose=0),
    }
    for n in (60, SHORT, TINY, 5, 1):
        result[f"predict {n}"] = model.predict(X[:n], batch_size=BATCH, verbose=0).tolist()
    result["predict dataset"] = model.predict(dataset(SHORT), verbose=0).tolist()
    return result


@case
def on_batch():
    model = small()
    losses = [[float(v) for v in model.train_on_batch(X[:12], Y[:12])] for _ in range(3)]
    tested = [float(v) for v in model.test_on_batch(X[:12], Y[:12])]
    return {"train": losses, "test": tested, "weights": weights(model)}


@case
def predict_on_batch():
    # Each worker passes its own batch and receives all of them, by rank.
    predicted = small().predict_on_batch(X[:12])
    return {"each": predicted.tolist()}


def optimizer_case(name, make, **options):
    def run():
        return fitted(small(optimizer=make), X[:SHORT], Y[:SHORT], epochs=4, **options)

    CASES[name] = run


optimizer_case("clipnorm", lambda: keras.optimizers.SGD(0.5, clipnorm=0.05))
optimizer_case("global_clipnorm", lambda: keras.optimizers.SGD(0.5, global_clipnorm=0.05))
optimizer_case("clipvalue", lambda: keras.optimizers.SGD(0.5, clipvalue=0.01))
optimizer_case("accumulation", lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=3))
optimizer_case(
    "accumulation_and_clipping",
    lambda: keras.optimizers.SGD(0.5, clipnorm=0.05, gradient_accumulation_steps=2),
)
optimizer_case("weight_decay", lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1))
optimizer_case(
    "moving_average",
    lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3),
)
optimizer_case(
    "schedule",
    lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)),
)
optimizer_case(
    "loss_scale",
    lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, clipnorm=0.05), dynamic_growth_steps=5
    ),
)


@case
def loss_scale_skips_together():
    # An infinite gradient on the last worker only: all must skip the step.
    model = small(optimizer=lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)))
    x = X.copy()
    x[11] = np.inf
    return fitted(model, x[:12], Y[:12], epochs=2)["weights"]


@case
def mixed_bfloat16():
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        return fitted(small(), X, Y)
    finally:
        keras.mixed_precision.set_global_policy("float32")


@case
def mixed_float16():
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return fitted(small(), X, Y)
    finally:
        keras.mixed_precision.set_global_policy("float32")


@case
def embedding():
    keras.utils.set_random_seed(5)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,), dtype="int32"),
                keras.layers.Embedding(10, 4),
                keras.layers.Flatten(),
                keras.layers.Dense(3),
            ]
        )
        model.compile(
            optimizer=keras.optimizers.Adam(0.05, global_clipnorm=0.1),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    ids = (X[:SHORT, :4] * 10).astype("int32")
    result = fitted(model, ids, Y[:SHORT])
    assert whole_reads(model, model.layers[0].embeddings, (ids, Y[:SHORT])) == 0
    return result


class Positions(keras.layers.Layer):
    """Adds the same table to all samples: its gradient's rows are sums over them."""

    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(4, 3)

    def call(self, x):
        places = keras.ops.arange(keras.ops.shape(x)[1])  # a number, or known with a batch
        return x + self.table(keras.ops.expand_dims(places, 0))


@case
def positions():
    keras.utils.set_random_seed(6)
    with strategy.scope():
        layers = [keras.layers.Dense(12), keras.layers.Reshape((4, 3)), Positions()]
        layers += [keras.layers.Flatten(), keras.layers.Dense(3)]
        model = keras.Sequential([keras.Input(X.shape[1:]), *layers])
        model.compile(
            optimizer=keras.optimizers.Adam(0.01, global_clipnorm=0.1),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    return fitted(model, X[:SHORT], Y[:SHORT])


@case
def positions_of_any_length():
    keras.utils.set_random_seed(6)
    with strategy.scope():
        layers = [Positions(), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)]
        model = keras.Sequential([keras.Input((None, 3)), *layers])
        model.compile(
            optimizer=keras.optimizers.Adam(0.01, global_clipnorm=0.1),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    whole = tf.data.Dataset.from_tensor_slices((np.resize(X, (SHORT, 4, 3)), Y[:SHORT]))
    return fitted(model, whole.map(lambda x, y: (x[: 2 + y], y)).padded_batch(BATCH))


def whole_reads(model, table, batch):
    """How many ops of a training step read all of `table` (see patches/keras_layers.py)."""

    @tf.function(autograph=False)
    def step():
        return strategy.run(model.train_step, (batch,))

    graph = step.get_concrete_function().graph
    local = strategy.experimental_local_results(table.value)[0]
    handles = [inside for outside, inside in graph.captures if outside is local.handle]
    assert len(handles) == 1
    reads = [op.type for op in handles[0].consumers()]
    assert "ResourceGather" in reads
    return reads.count("ReadVariableOp")


@case
def batch_norm():
    return fitted(small(layers=[keras.layers.BatchNormalization()]), X[:TINY], Y[:TINY])


@case
def batch_norm_synchronized():
    layers = [keras.layers.BatchNormalization(synchronized=True)]
    return fitted(small(layers=layers), X[:SHORT], Y[:SHORT])


@case
def dropout():
    return fitted(small(layers=[keras.layers.Dropout(0.5, seed=1)]), X, Y)


@case
def random_flip():
    images = rng.rand(24, 4, 4, 1).astype("float32")
    keras.utils.set_random_seed(11)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4, 4, 1)),
                keras.layers.RandomFlip(seed=2),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer="sgd", loss="mse")
    return fitted(model, images, images.mean(axis=(1, 2)))


class OwnStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.seen.update_state(tf.reduce_mean(x, axis=1))
        return {"seen": self.seen.result()}


def with_own_step(made):
    keras.utils.set_random_seed(13)
    with strategy.scope():
        model = made()
        model.compile(
            optimizer=keras.optimizers.SGD(0.1),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model(X[:1])
    return model


@case
def own_train_step():
    return fitted(with_own_step(OwnStep), X[:SHORT], Y[:SHORT])


class Gathers(keras.Model):
    """Updates by gradients that it gathers in variables, and hands over as those."""

    def __init__(self):
        super().__init__()
        self.dense, self.gathered = keras.layers.Dense(3), []

    def call(self, x, training=False):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        variables = self.trainable_variables
        for gathered, gradient in zip(self.gathered, tape.gradient(loss, variables), strict=True):
            gathered.assign_add(gradient)
        self.optimizer.apply_gradients(zip(self.gathered, variables, strict=True))
        for gathered in self.gathered:
            gathered.assign(gathered / 2)
        return {"loss": loss}


@case
def gradients_in_variables():
    model = with_own_step(Gathers)
    with strategy.scope():
        # Not the model's: they hold what is one worker's own.
        model.gathered = [tf.Variable(tf.zeros(v.shape)) for v in model.trainable_variables]
    return {"weights": fitted(model, X[:36], Y[:36])["weights"]}


@case
def regularized():
    layer = keras.layers.Dense(4, kernel_regularizer=keras.regularizers.L2(0.1))
    return fitted(small(layers=[layer]), X[:SHORT], Y[:SHORT])


@case
def vector_metric():
    with strategy.scope():
        metric = keras.metrics.F1Score(name="f1")
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, activation="softmax")])
        model.compile(optimizer="sgd", loss="categorical_crossentropy", metrics=[metric])
    result = fitted(model, X, np.eye(3, dtype="float32")[Y])
    result["history"]["f1"] = np.asarray(result["history"]["f1"]).tolist()
    return result


@case
def run_eagerly():
    return fitted(small(run_eagerly=True), X[:SHORT], Y[:SHORT], epochs=1)


@case
def jit_compile():
    try:
        fitted(small(jit_compile=True), X, Y)
    except TfrunError as error:
        return {"code": error.code if WORKERS > 1 else ""}
    return {"code": "TFRUN-505" if WORKERS == 1 else ""}


@case
def global_step_logs():
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append({k: float(v) for k, v in logs.items()})

        def on_test_batch_end(self, batch, logs=None):
            seen.append({k: float(v) for k, v in logs.items()})

    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, activation="sigmoid")])
        # No mean of theirs is that of the whole batch, also where workers have equally many.
        metrics = ["accuracy", keras.metrics.AUC(name="auc"), keras.metrics.Precision(name="p")]
        model.compile("sgd", "binary_crossentropy", metrics=metrics)
    data = {"x": X[:TINY], "y": Y[:TINY, None] % 2, "batch_size": 20}
    model.fit(**data, epochs=2, shuffle=False, verbose=0, callbacks=[Look()])
    model.evaluate(**data, verbose=0, callbacks=[Look()])
    return seen


def main() -> None:
    chosen = sys.argv[1:] or os.environ.get("TEST_CASES", "").split()
    results = {}
    for name, function in CASES.items():
        if chosen and name not in chosen:
            continue
        results[name] = function()
        keras.backend.clear_session(free_memory=False)
    with open(os.environ["TFRUN_TEST_OUT"], "w") as file:  # noqa: PTH123
        json.dump(results, file)


main()
