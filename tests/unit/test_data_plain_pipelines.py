"""Plain tf.data pipelines over arrays, read by rows: the same samples in the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute
from tensorflow.python.distribute import input_ops

from tfrun.data.keras import plain_pipelines
from tfrun.data.keras.plain_pipelines import with_known_size
from tfrun.patches.apply import apply
from tfrun.patches.rows_tensorflow import DATA

ROWS = 23
X = np.random.RandomState(0).rand(ROWS, 3, 2).astype("float32")
Y = np.arange(ROWS)
RAGGED = tf.ragged.constant([[1], [2, 3], [4]])


@pytest.fixture(autouse=True)
def noted() -> None:
    apply(DATA)


def source() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, {"label": Y}))


def optioned(data: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


PLAIN: dict[str, Callable[[], tf.data.Dataset]] = {
    "batch": lambda: source().batch(4),
    "drop remainder": lambda: source().batch(4, drop_remainder=True),
    "shuffle": lambda: source().shuffle(ROWS, seed=4).batch(4),
    "small buffer": lambda: source().shuffle(5, seed=1).batch(4),
    "the same each time": lambda: (
        source().shuffle(9, seed=5, reshuffle_each_iteration=False).batch(4)
    ),
    "repeat": lambda: source().shuffle(ROWS, seed=4).repeat(3).batch(4),
    "several epochs at once": lambda: source().shuffle(60, seed=4).repeat(4).batch(4),
    "endless": lambda: source().shuffle(ROWS, seed=4).repeat().batch(4).take(20),
    "repeated batches": lambda: source().shuffle(ROWS, seed=4).batch(4).repeat(2).prefetch(2),
    "shuffled batches": lambda: source().batch(4).shuffle(3, seed=2).skip(1),
    "parts": lambda: source().skip(2).take(17).shard(2, 1).batch(3).prefetch(tf.data.AUTOTUNE),
    "options": lambda: optioned(source().shuffle(ROWS, seed=4).batch(4)),
    "one array": lambda: tf.data.Dataset.from_tensor_slices(X).shuffle(3, seed=6).batch(6),
}
OTHER: dict[str, Callable[[], tf.data.Dataset]] = {
    "map": lambda: source().map(lambda x, y: (x + 1, y)).batch(4),
    "map of batches": lambda: source().batch(4).map(lambda x, y: (x + 1, y)),
    "filter": lambda: source().filter(lambda x, y: y["label"] > 2).batch(4),
    "cache": lambda: source().cache().batch(4),
    "several at once": lambda: source().batch(4, num_parallel_calls=2),
    "no batch": source,
    "batches of batches": lambda: source().batch(2).batch(2),
    "names of files": lambda: tf.data.Dataset.from_tensor_slices(["a", "b", "c"]).batch(2),
    "two sources": lambda: tf.data.Dataset.zip((source(), source())).batch(4),
    "numbers": lambda: tf.data.Dataset.range(9).batch(4),
    "ragged": lambda: tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])).batch(
        2
    ),
}


def read(data: tf.data.Dataset) -> list[Any]:
    return [tf.nest.map_structure(lambda leaf: leaf.numpy(), one) for one in data]


def same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("name", PLAIN)
def test_one_worker_gets_the_same_batches_also_the_second_time(name: str) -> None:
    wanted, ours = PLAIN[name](), plain_pipelines.by_rows(before := PLAIN[name]())
    assert ours is not before
    assert ours.element_spec == wanted.element_spec
    assert ours.cardinality() == wanted.cardinality()
    for _ in range(2):  # a shuffle goes on with its random numbers
        same(read(ours), read(wanted))


@pytest.mark.parametrize("name", ["shuffle", "repeat", "drop remainder", "options", "endless"])
@pytest.mark.parametrize("workers", [2, 3])
def test_each_worker_gets_its_part_of_the_same_batches(name: str, workers: int) -> None:
    for worker in range(workers):
        wanted, found = PLAIN[name](), plain_pipelines.by_numbers(before := PLAIN[name]())
        assert found is not None
        sizes = distribute.batch_sizes_for_worker(
            distribute.compute_batch_size(before), workers, 1, worker
        )

        def shared(data: Any, sizes=sizes, worker=worker) -> Any:
            data = data.rebatch(sizes).prefetch(1)
            return input_ops.auto_shard_dataset(data, workers, worker, workers)

        same(read(found.read(shared(found.numbers))), read(shared(wanted)))


@pytest.mark.parametrize("name", OTHER)
def test_other_pipelines_stay_as_they_are(name: str) -> None:
    data = OTHER[name]()
    assert plain_pipelines.by_rows(data) is data


def test_two_batchings_of_one_shuffle_share_its_random_numbers() -> None:
    def both(change: Callable[[Any], Any]) -> list[Any]:
        shuffled = source().shuffle(ROWS, seed=4)
        return read(change(shuffled.batch(4))) + read(change(shuffled.batch(5)))

    same(both(plain_pipelines.by_rows), both(lambda data: data))


def test_a_shuffle_that_somebody_has_looked_into_goes_on_as_it_is() -> None:
    for look in (lambda d: next(iter(d)), lambda d: d.batch(2).reduce(0, lambda n, _: n + 1)):
        data = source().shuffle(ROWS, seed=4)
        look(data)
        assert plain_pipelines.by_numbers(data.batch(4)) is None
    fixed = source().shuffle(ROWS, seed=4, reshuffle_each_iteration=False).batch(4)
    next(iter(fixed))  # which changes nothing
    assert plain_pipelines.by_numbers(fixed) is not None


@pytest.mark.parametrize("wanted", [True, False])
def test_one_worker_of_a_job_reads_by_rows(
    monkeypatch: pytest.MonkeyPatch, work_under, wanted: bool
) -> None:
    data = source().batch(4)
    assert plain_pipelines.for_one(data) is data  # outside a job
    monkeypatch.setenv("TFRUN_ROUND", "0")
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["localhost:1"]}}')
    work_under(own_rows=wanted)
    assert (plain_pipelines.for_one(data) is not data) == wanted


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda d: d.repeat().batch(4), 4),
        (lambda d: d.map(lambda x, y: (x, y)).repeat().batch(4).prefetch(1), 4),
        (lambda d: d.take(20).batch(4).shuffle(2).repeat(), 4),
        (lambda d: d.repeat().batch(4, num_parallel_calls=2), 4),
        (lambda d: d.batch(4).repeat(), None),  # 23 samples: one batch of an epoch is short
        (lambda d: d.take(20).batch(4), None),  # an end is agreed on
        (lambda d: d.repeat().batch(3), None),  # two workers do not get as much each
        (lambda d: d.repeat().batch(4).map(lambda x, y: (x, y)), None),
        (lambda d: d.repeat(), None),
    ],
)
def test_the_size_of_full_batches_is_known(make: Any, size: int | None) -> None:
    data = make(source())
    sized = with_known_size(data, 2)
    assert (sized is not data) == (size is not None)
    if size:
        shapes = [leaf.shape for leaf in tf.nest.flatten(sized.element_spec)]
        assert [shape[0] for shape in shapes] == [size, size]
        again = with_known_size(make(source()), 2)
        for batch, _ in zip(again, range(7), strict=False):
            assert batch[0].shape == (size, 3, 2)


def test_tensorflow_still_keeps_what_pipelines_are_made_of() -> None:
    """Fails where an upstream change has had `by_numbers` leave all pipelines as they are."""
    assert all(plain_pipelines.by_numbers(PLAIN[name]()) is not None for name in PLAIN)


@pytest.mark.parametrize(
    ("data", "replicas", "expected"),
    [
        (lambda: source().batch(4, drop_remainder=True), 2, True),
        (lambda: source().batch(4, drop_remainder=True), 4, True),
        (lambda: source().batch(4, drop_remainder=True), 3, False),
        (lambda: source().batch(4), 2, False),
        (lambda: tf.data.Dataset.range(8), 2, False),
    ],
)
def test_batches_of_one_size_end_for_all_replicas_at_once(data, replicas, expected) -> None:
    assert plain_pipelines.has_one_size(data(), replicas) is expected


def test_a_pipeline_that_workers_do_not_share_by_batch_may_end_at_other_times() -> None:
    made = source().batch(4, drop_remainder=True)
    assert plain_pipelines.is_by_batch(made, has_files=False)
    assert not plain_pipelines.is_by_batch(made, has_files=True)
    assert plain_pipelines.is_by_batch(plain_pipelines.shared_by_batch(made), has_files=True)
    assert not plain_pipelines.is_by_batch(optioned(made), has_files=False)
