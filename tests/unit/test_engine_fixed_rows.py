"""Which rows of a gradient no batch has chosen."""

from __future__ import annotations

import tensorflow as tf

from tfrun.engine.fixed_rows import are_fixed

OUTSIDE = tf.constant([0, 1, 2, 3])


def fixed(look_up, size: int | None = 3) -> bool:
    """Whether the rows are that `look_up(ids)` gives of a table, in a traced step."""
    table, found = tf.Variable(tf.ones([5, 2])), []

    @tf.function(input_signature=[tf.TensorSpec([size, 4], tf.int32)])
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, look_up(ids)))
        found.append(are_fixed(tape.gradient(loss, table)))

    step.get_concrete_function()
    return found[0]


def test_positions_are_fixed_and_samples_are_not():
    assert fixed(lambda ids: tf.range(4))
    assert fixed(lambda ids: tf.range(ids.shape[-1])[None])
    assert fixed(lambda ids: tf.ensure_shape(tf.range(tf.shape(ids)[-1]), [4]))
    assert fixed(lambda ids: tf.where(OUTSIDE < 0, OUTSIDE + 5, OUTSIDE))
    assert not fixed(lambda ids: ids)
    assert not fixed(lambda ids: ids, size=None)
    assert not fixed(lambda ids: tf.concat([tf.range(4), ids[0]], 0))
    assert not fixed(lambda ids: tf.random.uniform([4], maxval=5, dtype=tf.int32))


def test_how_many_rows_there_are_has_to_be_known():
    assert not fixed(lambda ids: tf.range(tf.shape(ids)[0]), size=None)


def test_dense_gradients_and_eager_ones_are_added_up_as_ever():
    assert not are_fixed(tf.ones([2]))
    assert not are_fixed(tf.IndexedSlices(tf.ones([2, 1]), tf.constant([0, 1])))
