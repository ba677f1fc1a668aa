"""Larger batches of a script's pipeline: those of the same pipeline with a larger `batch`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfrun.data.keras.global_batch import reads_of
from tfrun.data.keras.larger_batches import larger

NUMBERS = np.arange(21, dtype="int64")


def plain(batch, **how):
    return tf.data.Dataset.from_tensor_slices(NUMBERS).batch(batch, **how)


def tripled(dataset):
    return dataset.map(lambda numbers: 3 * numbers)


def lines(batch, **how):
    """Samples of different lengths."""
    made: Any = tf.data.Dataset.range(7).map(lambda n: tf.repeat(n, n + 1))
    return made.padded_batch(batch, padded_shapes=[None], padding_values=np.int64(-1), **how)


def shuffled(batch):
    return tf.data.Dataset.from_tensor_slices(NUMBERS).shuffle(21, seed=2).batch(batch)


def options():
    found = tf.data.Options()
    found.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return found


SAME = {
    "plain": plain,
    "drops": lambda batch: plain(batch, drop_remainder=True),
    "in parallel": lambda batch: plain(batch, num_parallel_calls=2, deterministic=True),
    "prefetch": lambda batch: plain(batch).prefetch(2),
    "repeat": lambda batch: plain(batch).repeat(2).prefetch(1),
    "drops, repeat": lambda batch: plain(batch, drop_remainder=True).repeat(2),
    "options": lambda batch: plain(batch).with_options(options()).repeat(2),
    "shuffle": shuffled,
    "padded": lines,
    "padded, drops": lambda batch: lines(batch, drop_remainder=True).prefetch(1),
    "parallel map": lambda batch: plain(batch).map(lambda n: -n, num_parallel_calls=2),
    "map": lambda batch: tripled(plain(batch)),
    "map, drops": lambda batch: tripled(plain(batch, drop_remainder=True)),
    "map, cache, repeat": lambda batch: tripled(plain(batch)).cache().repeat(2),
    "interleaved": lambda batch: plain(3).unbatch().batch(batch),
}


@pytest.mark.parametrize("kind", SAME)
def test_it_gives_the_batches_of_a_larger_batch(kind: str) -> None:
    small, large = SAME[kind](2), SAME[kind](6)
    found = larger(small, 3, None)
    assert found is not None and found.batch == 2
    made = found.dataset
    for _ in range(2):  # a shuffle goes on
        mine, theirs = list(made.as_numpy_iterator()), list(large.as_numpy_iterator())
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
    assert made.cardinality() == large.cardinality()
    assert made.element_spec == large.element_spec
    assert reads_of(made).batch == 6
    mine, theirs = (of.options().experimental_distribute for of in (made, large))
    assert mine.auto_shard_policy == theirs.auto_shard_policy
    assert larger(small, 3, None) is found  # for the next `fit`


def test_small_batches_are_shuffled_as_they_were() -> None:
    made = larger(plain(3).shuffle(7, seed=1), 2, None)
    assert made is not None
    batches = list(made.dataset.as_numpy_iterator())
    assert [len(batch) for batch in batches] == [6, 6, 6, 3]
    assert sorted(np.concatenate(batches)) == sorted(NUMBERS)
    whole = [row for batch in batches for row in batch.reshape(-1, 3)]
    assert all(list(row) == list(range(row[0], row[0] + 3)) for row in whole)


@pytest.mark.parametrize(
    "dataset",
    [
        lines(2).map(lambda rows: rows + 1),  # of different lengths
        tf.data.Dataset.range(6).batch(2).map(lambda rows: tf.ragged.stack([rows])),
        plain(3).unbatch(),
        tf.data.Dataset.from_generator(iter, output_types=tf.int64),
    ],
)
def test_what_may_not_fit_together_or_has_no_batches_is_left(dataset: tf.data.Dataset) -> None:
    assert larger(dataset, 2, None) is None


def test_a_map_that_makes_more_samples_is_found() -> None:
    made = larger(plain(3).map(lambda rows: tf.concat([rows, -rows], 0)), 2, None)
    assert made is not None
    with pytest.raises(tf.errors.InvalidArgumentError, match="TFRUN-107: --scale-batch counts on"):
        list(made.dataset)
