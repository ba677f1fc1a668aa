"""What a loss is made of, read off graphs and off what is executed eagerly."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf
from keras import ops

from tfrun.engine.loss_reader import EagerRecorder, LossReader, can_be_copied, copied
from tfrun.engine.loss_terms import MeanOver, Term, Walk

W = tf.Variable([[1.0], [2.0]])
S = tf.Variable(0.5)


def rows(x):
    return tf.reduce_sum((x @ W) ** 2, axis=-1)


def size(x):
    return tf.cast(tf.shape(x)[0], tf.float32)


@tf.function
def inner(x):
    return tf.reduce_mean(rows(x)) * S


KINDS = {
    "mean": (lambda x: ops.mean(rows(x)), Term.MEAN),
    "sum": (lambda x: ops.sum(rows(x)), Term.SUM),
    "mean of a mean": (lambda x: tf.reduce_mean(tf.reduce_mean((x @ W) ** 2, axis=1)), Term.MEAN),
    "sum of a mean": (lambda x: tf.reduce_sum(tf.reduce_mean(x @ W, axis=0)), Term.MEAN),
    "mean of sums": (lambda x: ops.mean(ops.sum(x @ W, axis=(1,))), Term.MEAN),
    "one for each sample": (rows, Term.ROWS),
    "flat": (lambda x: tf.reduce_mean(tf.reshape(x @ W, [-1])), Term.MEAN),
    "scaled": (lambda x: 0.5 * ops.mean(rows(x)) / 3.0, Term.MEAN),
    "scaled by weights": (lambda x: tf.exp(-S) * tf.reduce_mean(rows(x)) + S, Term.MEAN),
    "two means": (lambda x: ops.mean(rows(x)) - 2.0 * ops.mean(x), Term.MEAN),
    "a mean added to each": (lambda x: ops.mean(rows(x) + ops.mean(x)), Term.MEAN),
    "a mean and weights": (lambda x: ops.mean(rows(x)) + ops.sum(W**2), Term.MEAN),
    "weights": (lambda x: ops.sum(W**2) * 0.1, Term.FIXED),
    "a sum over the batch's size": (lambda x: tf.reduce_sum(rows(x)) / size(x), Term.MEAN),
    "rows over the batch's size": (lambda x: tf.reduce_sum(rows(x) / size(x)), Term.MEAN),
    "a sum over all numbers": (
        lambda x: tf.reduce_sum(x) / tf.cast(tf.size(x), tf.float32),
        Term.MEAN,
    ),
    "a sum over both sizes": (
        lambda x: tf.reduce_sum(x) / tf.cast(tf.shape(x)[0] * tf.shape(x)[1], tf.float32),
        Term.MEAN,
    ),
    "a sum over the size of weights": (
        lambda x: tf.reduce_sum(x) / tf.cast(tf.shape(W)[0], tf.float32),
        Term.SUM,
    ),
    "a mean times the size": (lambda x: tf.reduce_mean(rows(x)) * size(x), Term.SUM),
    "the size": (size, Term.COUNT),
    "another size": (lambda x: tf.cast(tf.shape(x)[1], tf.float32), Term.FIXED),
    "a sum and a mean": (lambda x: ops.sum(rows(x)) + ops.mean(x), Term.MIXED),
    "a sum and weights": (lambda x: ops.sum(rows(x)) + S, Term.MIXED),
    "a list": (lambda x: ops.sum([ops.mean(rows(x)), ops.mean(x)]), Term.MEAN),
    "a mixed list": (lambda x: ops.sum([ops.mean(rows(x)), ops.sum(x)]), Term.MIXED),
    "Python's sum": (lambda x: sum([ops.sum(rows(x)), ops.sum(x)]), Term.SUM),
    "a root": (lambda x: ops.sqrt(ops.mean(rows(x))), Term.MIXED),
    "a quotient": (lambda x: ops.sum(rows(x)) / ops.sum(x), Term.MIXED),
    "l2 of what is computed": (lambda x: tf.nn.l2_loss(x @ W), Term.SUM),
    "largest": (lambda x: tf.reduce_max(rows(x)), Term.UNKNOWN),
    "matrix": (lambda x: tf.squeeze(tf.transpose(x[:, :1]) @ x[:, 1:]), Term.UNKNOWN),
    "noise of the batch's size": (
        lambda x: tf.reduce_mean(tf.random.normal([tf.shape(x)[0], 2]) @ W),
        Term.MEAN,
    ),
    "noise of a size": (lambda x: tf.reduce_sum(tf.random.normal([4, 2]) @ W), Term.FIXED),
    "keras": (lambda x: keras.losses.MeanSquaredError()(x[:, :1], x @ W), Term.MEAN),
    "keras's sum": (lambda x: keras.losses.MeanSquaredError("sum")(x[:, :1], x @ W), Term.SUM),
}
PAIRS = {
    "products": (lambda x: ops.mean(x @ tf.transpose(x)), Term.UNKNOWN),
    "einsum": (lambda x: tf.reduce_sum(tf.einsum("ae,be->ab", x, x)), Term.UNKNOWN),
    "tensordot": (
        lambda x: tf.reduce_sum(tf.tensordot(ops.reshape(x, (-1, 1, 2)), x, ((2,), (1,)))),
        Term.UNKNOWN,
    ),
    "differences": (lambda x: ops.mean((x[:, None] - x[None]) ** 2), Term.UNKNOWN),
    "what is left of a mean": (lambda x: ops.sum((x - ops.mean(x)) ** 2), Term.UNKNOWN),
    "over a mean": (lambda x: ops.mean(rows(x) / ops.mean(rows(x))), Term.UNKNOWN),
    "flat times column": (lambda x: ops.mean(x[:, 0] * x[:, 1:]), Term.UNKNOWN),
    "contrastive": (
        lambda x: keras.losses.sparse_categorical_crossentropy(
            tf.range(tf.shape(x)[0]), tf.matmul(x, x, transpose_b=True), from_logits=True
        ),
        Term.PAIRS,
    ),
    "sums along the batch": (lambda x: ops.mean(ops.cumsum(rows(x))), Term.UNKNOWN),
    "the largest ones": (lambda x: ops.mean(ops.top_k(rows(x), 2)[0]), Term.UNKNOWN),
    "in an order": (lambda x: ops.mean(ops.sort(x, axis=0)[:1]), Term.UNKNOWN),
    "shares of the batch": (lambda x: ops.mean(ops.softmax(rows(x)) * rows(x)), Term.UNKNOWN),
    "neighbours": (lambda x: ops.mean(x * ops.roll(x, 1, axis=0)), Term.UNKNOWN),
    "no pairs: sums along each": (lambda x: ops.mean(ops.cumsum(x, axis=1)), Term.MEAN),
    "no pairs: largest of each": (lambda x: ops.mean(ops.top_k(x, 1)[0]), Term.MEAN),
    "no pairs: shares of each": (lambda x: ops.mean(ops.softmax(x)), Term.MEAN),
    "no pairs: products of each sample's": (
        lambda x: ops.mean(tf.matmul(x[:, :, None], x[:, None, :])),
        Term.MEAN,
    ),
    "no pairs: einsum of each sample's": (
        lambda x: ops.mean(tf.einsum("be,be->b", x, x)),
        Term.MEAN,
    ),
    "no pairs: words of all samples in one row": (
        lambda x: ops.mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.reshape(tf.cast(x, tf.int32) % 4, [-1]),
                logits=tf.reshape(x[:, :, None] * tf.ones(4), [-1, 4]),
            )
        ),
        Term.MEAN,
    ),
    "no pairs: broadcast within samples": (lambda x: ops.mean(x * x[:, :1]), Term.MEAN),
}
GRAPHS = {
    "in a function": (inner, Term.MEAN),
    "in a condition's": (lambda x: 2.0 * inner(x) + 0.0, Term.MEAN),
}


def walk_of(x, recorder=None):
    return Walk(LossReader(recorder), [x], x.shape[0], {})


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("name", [*KINDS, *PAIRS, *GRAPHS])
def test_kinds_in_a_graph(name: str, batch: int | None) -> None:
    function, kind = {**KINDS, **PAIRS, **GRAPHS}[name]
    found = []

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([batch, 2])])
    def traced(x):
        with tf.GradientTape():
            loss = function(x)
        found.append(walk_of(x).kind(loss))
        return loss

    traced.get_concrete_function()
    assert found == [kind]


@pytest.mark.parametrize("name", [*KINDS, *PAIRS])
def test_kinds_of_what_is_executed_eagerly(name: str) -> None:
    function, kind = {**KINDS, **PAIRS}[name]
    x, recorder = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), EagerRecorder()
    with recorder.records(), tf.GradientTape():
        loss = function(x)
    assert walk_of(x, recorder).kind(loss) is kind


def test_rows_that_a_mask_has_chosen_are_no_batch() -> None:
    x, recorder = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), EagerRecorder()
    with recorder.records():
        loss = tf.reduce_mean(tf.boolean_mask(rows(x), x[:, 0] > 2.0))
    kind = walk_of(x, recorder).kind(loss)
    assert isinstance(kind, MeanOver)
    assert int(kind.count()) == 2


def test_rows_over_the_sum_of_weights_are_a_mean_by_weight() -> None:
    x, recorder = tf.constant([[1.0, 2.0], [3.0, 4.0]]), EagerRecorder()
    with recorder.records():
        loss = tf.reduce_sum(rows(x) * x[:, 0] / tf.reduce_sum(x[:, 0]))
    kind = walk_of(x, recorder).kind(loss)
    assert isinstance(kind, MeanOver)
    assert float(kind.count()) == 4.0


def test_what_has_been_done_is_done_again_with_other_inputs() -> None:
    recorder, x = EagerRecorder(), tf.constant([3.0, 1.0, 2.0])
    with recorder.records():
        largest, _ = tf.math.top_k(x, k=2, sorted=True)
        called = tf.function(tf.sort)(x)
        drawn = tf.random.uniform([2])
    op: Any = recorder.op(largest)
    assert can_be_copied(op)
    values, indices = copied(op, [tf.constant([4.0, 5.0, 6.0]), *op.inputs[1:]])
    assert values.numpy().tolist() == [6.0, 5.0] and indices.numpy().tolist() == [2, 1]
    others: list[Any] = [recorder.op(called), recorder.op(drawn)]
    assert not any(map(can_be_copied, others))


def test_what_somebody_has_said_is_not_looked_up() -> None:
    x = tf.constant([[1.0, 2.0]])
    loss = tf.reduce_mean(x)
    walk = Walk(LossReader(), [x], 1, {id(loss): (loss, Term.SUM)})
    assert walk.kind(loss) is Term.SUM


def test_a_chain_of_thousands_of_operations_is_no_error() -> None:
    kinds = []

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, 2])])
    def traced(x):
        loss = tf.reduce_mean(x)
        for _ in range(1500):
            loss = loss + 1.0
        kinds.append(walk_of(x).kind(loss))
        return loss

    traced.get_concrete_function()
    assert kinds == [Term.MEAN]
