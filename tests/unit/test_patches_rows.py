"""Lookups read rows, not tables; and what they give is Keras's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.common.variables import AutocastScope
from keras.src.backend.tensorflow import numpy as keras_numpy

from tfrun.patches import keras_layers
from tfrun.patches.apply import replacements
from tfrun.patches.table import TABLE

KERAS = inspect.unwrap(keras_numpy.take)
Adagrad: Any = keras.optimizers.Adagrad
SHAPE = (6, 2)
TAKE = "keras.src.backend.tensorflow.numpy:take"
UPDATE = "keras.src.optimizers.adagrad:Adagrad.update_step"


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only here: other tests may have Keras as it is.
    for patch in TABLE:
        if {TAKE, UPDATE} & set(patch.targets):
            for each in replacements(patch):
                monkeypatch.setattr(each.owner, each.name, each.made)


def table(*, layer: Any = keras.layers.Embedding, **options: Any) -> keras.Variable:
    made = layer(*SHAPE, embeddings_initializer=keras.initializers.RandomUniform(seed=1), **options)
    made.build()
    return made._embeddings


def whole_reads(take: Callable, variable: keras.Variable, ids: Any) -> int:
    """How many ops of the graph of a lookup and its gradient take a read of all of `variable`."""

    @tf.function(autograph=False)
    def look_up():
        with tf.GradientTape() as tape:
            found = take(variable, ids, axis=0)
        return found, tape.gradient(found, variable.value)

    return whole_reads_in(look_up.get_concrete_function().graph)


def whole_reads_in(graph: Any) -> int:
    reads = [op.outputs[0] for op in graph.get_operations() if op.type == "ReadVariableOp"]
    return sum(read.shape == SHAPE and bool(read.consumers()) for read in reads)


def test_keras_still_reads_the_whole_table() -> None:
    """When this fails, Keras does so: patches/keras_layers.py can go but for the servers."""
    assert whole_reads(KERAS, table(), tf.constant([1, 2])) == 1


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("ids", [[0, 5, 5, -1, -6], [[2], [3]], 4, []])
def test_rows_and_gradients_are_those_of_keras(ids: Any, dtype: str) -> None:
    variable, ids = table(), tf.constant(ids, dtype)
    assert whole_reads(keras_numpy.take, variable, ids) == 0
    found = []
    for take in (keras_numpy.take, KERAS):
        with tf.GradientTape() as tape:
            taken = take(variable, ids, axis=0)
            loss = tf.reduce_sum(taken**2)
        gradient = tape.gradient(loss, variable.value)
        assert isinstance(gradient, tf.IndexedSlices)
        found.append((taken.numpy(), gradient.indices.numpy(), gradient.values.numpy()))
    for ours, theirs in zip(*found, strict=True):
        assert ours.shape == theirs.shape and (ours == theirs).all()


@pytest.mark.parametrize("ids", [[1, 6], [-7], [1.0]])
def test_wrong_ids_fail_as_ever(ids: list) -> None:
    variable, failures = table(), []
    for take in (keras_numpy.take, KERAS):
        with pytest.raises(Exception) as failure:
            take(variable, tf.constant(ids), axis=0)
        failures.append(failure.type)
    assert failures[0] is failures[1]


@pytest.mark.parametrize(
    ("variable", "ids", "options"),
    [
        (table, tf.constant([1, 2], tf.int16), {"axis": 0}),
        (table, tf.constant([1, 0]), {"axis": 1}),
        (table, tf.constant([11]), {"axis": None}),
        (table, tf.ragged.constant([[1], [2, 3]], dtype=tf.int32), {"axis": 0}),
        (table, tf.sparse.from_dense([[1, 0], [0, 2]]), {"axis": 0}),
        (lambda: np.arange(6.0), tf.constant([1, 2]), {"axis": 0}),
    ],
    ids=["int16", "columns", "flat", "ragged", "sparse", "no variable"],
)
def test_other_lookups_are_left_to_keras(variable: Callable, ids: Any, options: dict) -> None:
    given = variable()
    ours, theirs = (take(given, ids, **options) for take in (keras_numpy.take, KERAS))
    assert type(ours) is type(theirs)
    dense = [t.to_tensor() if isinstance(t, tf.RaggedTensor) else t for t in (ours, theirs)]
    assert (dense[0].numpy() == dense[1].numpy()).all()


@pytest.mark.parametrize(
    "options",
    [{"embeddings_regularizer": "l2"}, {"layer": keras.layers.ReversibleEmbedding}],
    ids=["regularized", "tied"],
)
def test_a_table_that_a_step_reads_whole_is_read_once(options: dict) -> None:
    """Reads of rows would make TensorFlow copy it at each whole read."""
    assert whole_reads(keras_numpy.take, table(**options), tf.constant([1])) == 1


def test_a_quantized_table_is_read_as_ever() -> None:
    assert keras_layers.table_of(keras.Variable([[1], [2]], dtype="int8")) is None


def test_a_table_that_is_not_tied_is_read_by_rows() -> None:
    variable = table(layer=keras.layers.ReversibleEmbedding, tie_weights=False)
    assert whole_reads(keras_numpy.take, variable, tf.constant([1])) == 0


def test_a_stated_value_is_looked_up_in() -> None:
    variable = table()
    with keras.StatelessScope(state_mapping=[(variable, tf.ones(SHAPE))]):
        assert (keras_numpy.take(variable, tf.constant([1, 2]), axis=0).numpy() == 1).all()


def test_a_lookup_is_cast_where_the_layer_computes_in_another_dtype() -> None:
    variable = table()
    with AutocastScope("float16"):
        ours, theirs = (t(variable, tf.constant([1]), axis=0) for t in (keras_numpy.take, KERAS))
    assert ours.dtype == theirs.dtype == tf.float16
    assert (ours.numpy() == theirs.numpy()).all()


def test_a_compiled_function_reads_rows_too() -> None:
    variable = table()
    compiled = tf.function(keras_numpy.take, jit_compile=True)
    assert (compiled(variable, tf.constant([4]), axis=0).numpy() == variable.numpy()[4]).all()


def test_a_mirrored_table_is_read_by_rows_inside_and_outside_of_a_run() -> None:
    cpus = tf.config.list_logical_devices("CPU")
    strategy = tf.distribute.MirroredStrategy([cpus[0].name])
    with strategy.scope():
        variable = table()
    assert isinstance(variable._value, tf.distribute.DistributedValues)
    ids = tf.constant([4])

    def in_run(*args, **kwargs):
        return strategy.run(keras_numpy.take, args, kwargs)

    @tf.function(autograph=False)
    def look_up():
        return keras_numpy.take(variable, ids, axis=0), in_run(variable, ids, axis=0)

    for found in look_up():
        assert (found.numpy() == variable.numpy()[4]).all()
    operations = look_up.get_concrete_function().graph.get_operations()
    assert [op.type for op in operations].count("ResourceGather") == 2
    assert "ReadVariableOp" not in [op.type for op in operations]


@pytest.mark.parametrize("own", [False, True], ids=["Keras", "ours"])
def test_adagrad_reads_accumulators_by_rows(own: bool) -> None:
    """When the first one fails, Keras does so itself, and that patch can go."""
    update = Adagrad.update_step if own else inspect.unwrap(Adagrad.update_step)
    variable, optimizer = table(), Adagrad()
    optimizer.build([variable])

    @tf.function(autograph=False)
    def step():
        slices = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 4]), tf.constant(SHAPE))
        update(optimizer, slices, variable, 0.1)

    assert whole_reads_in(step.get_concrete_function().graph) == (0 if own else 1)


def test_adagrad_gives_the_same_bits() -> None:
    """In a graph too, which TensorFlow optimizes."""
    ours, theirs = (trained(u) for u in (Adagrad.update_step, inspect.unwrap(Adagrad.update_step)))
    for one, other in zip(ours, theirs, strict=True):
        assert (one == other).all()


def trained(update: Callable) -> list[np.ndarray]:
    variable, optimizer = table(), Adagrad(0.1)
    optimizer.build([variable])

    @tf.function(autograph=False, reduce_retracing=True)
    def step(values, ids):
        slices = tf.IndexedSlices(values, ids, tf.constant(SHAPE))
        update(optimizer, slices, variable, tf.constant(0.1))

    random = np.random.RandomState(0)
    for ids in ([1, 4, 1], [5], [], *([0, 1, 2, 3, 4, 5, 5] for _ in range(20))):
        step(tf.constant(random.normal(size=(len(ids), 2)), tf.float32), tf.constant(ids, tf.int32))
    return [v.numpy() for v in (variable, *optimizer.variables)]
