"""`tfrun.Dataset` in one process: every source, every share, errors, Keras."""

from __future__ import annotations

import gc
import threading
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrun import Dataset
from tfrun.data.keras.arrays import as_dataset
from tfrun.data.order.position import Position
from tfrun.job.errors import TfrunError, UsageError

X = np.arange(100 * 3, dtype="float32").reshape(100, 3)
Y = np.arange(100)


def ids(batches) -> list[list[int]]:
    return [batch[1].numpy().tolist() for batch in batches]


def flat(batches: list[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def repeated():
    return tf.data.Dataset.range(3).repeat()


def write_records(path, texts):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for text in texts:
            writer.write(text)


@pytest.fixture(params=["arrays", "mapped", "source", "records", "files", "tf_data"])
def make(request, tmp_path):
    """Makes a dataset of (row of X, its number) from each kind of source."""

    def parse(record):
        number = tf.strings.to_number(record, tf.int32)
        return tf.gather(X, number), tf.cast(number, tf.int64)

    if request.param == "records":
        write_records(tmp_path / "a.tfrecord", [b"%d" % i for i in range(60)])
        write_records(tmp_path / "b.tfrecord", [b"%d" % i for i in range(60, 100)])
    if request.param == "files":
        for i in range(100):
            (tmp_path / f"{i:03}.txt").write_text(str(i))
    pairs = [(X[i], Y[i]) for i in range(100)]
    return {
        "arrays": lambda **o: Dataset.from_arrays((X, Y), **o),
        "mapped": lambda **o: Dataset.from_arrays((X, Y), **o).map(lambda x, y: (x, y)),
        "source": lambda **o: Dataset.from_source(pairs, **o),
        "records": lambda **o: Dataset.from_tfrecords(f"{tmp_path}/*.tfrecord", parse, **o),
        "files": lambda **o: Dataset.from_files(
            f"{tmp_path}/*.txt", lambda path, content: parse(content), **o
        ),
        "tf_data": lambda shuffle=False, **o: Dataset.from_tf_data(
            lambda: tf.data.Dataset.from_tensor_slices((X, Y)), **o
        ),
    }[request.param]


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_the_parts_of_all_workers_are_the_global_batch(make, size):
    data = make(batch_size=32, shuffle=True, seed=4)
    for epoch in (0, 3) if size < 40 else (3,):
        parts = [list(data.tf_data(rank, size, epoch)) for rank in range(size)]
        assert {len(part) for part in parts} == {4}
        for step in range(4):
            x = np.concatenate([part[step][0] for part in parts])
            y = np.concatenate([part[step][1] for part in parts])
            assert y.tolist() == data.sample_ids(epoch, step).tolist()
            np.testing.assert_array_equal(x, X[y])
        shapes = {tuple(leaf.shape[1:]) for part in parts for leaf in part[-1]}
        assert shapes == {(3,), ()}


def test_any_step_can_be_the_first(make):
    data = make(batch_size=32, shuffle=True, seed=4)
    whole = ids(data.tf_data(1, 3, 2))
    for step in range(4):
        assert ids(data.tf_data(1, 3, 2, step)) == whole[step:]


def test_each_pass_is_the_next_epoch_and_has_every_sample_once():
    data = Dataset.from_arrays((X, Y), batch_size=32, shuffle=True)
    first, second = ids(data), ids(data)
    assert first != second
    for batches in (first, second):
        assert sorted(flat(batches)) == list(range(100))
        assert [len(batch) for batch in batches] == [32, 32, 32, 4]
    assert data.position == Position(epoch=2)
    data.position = Position(epoch=0, step=2)
    assert ids(data) == first[2:]
    assert ids(data) == second
    iterator = iter(data)
    next(iterator)
    assert data.position == Position(epoch=2, step=1)
    assert ids(data) == [data.sample_ids(3, step).tolist() for step in range(4)]


def test_equal_shares_have_static_shapes():
    even = Dataset.from_arrays((X, Y), batch_size=20)
    assert even.tf_data(0, 2).element_spec[0].shape == (10, 3)
    assert even.tf_data(0, 3).element_spec[0].shape.as_list() == [None, 3]
    assert even.map(lambda x, y: (x, y)).tf_data(0, 2).element_spec[0].shape == (10, 3)


def test_lists_of_arrays_are_tuples_of_them():
    """Several inputs are often a list: `fit([users, items], y)`."""
    options = {"x": [X, Y], "y": Y, "batch_size": 20, "class_weight": None}
    for data in (Dataset.from_arrays(([X, Y], Y), batch_size=20), as_dataset(options)):
        assert data is not None
        (rows, numbers), labels = next(iter(data))
        assert rows.shape == (20, 3)
        assert (tf.reshape(numbers, [-1]).numpy() == tf.reshape(labels, [-1]).numpy()).all()


def test_random_functions_depend_on_the_sample_and_the_epoch_alone():
    def noise(x, y, seed):
        return tf.random.stateless_uniform([2], seed), y

    data = Dataset.from_arrays((X, Y), batch_size=32, shuffle=True).map(noise)

    def drawn(epoch, size):
        found = {}
        for rank in range(size):
            for values, numbers in data.tf_data(rank, size, epoch):
                found |= dict(zip(numbers.numpy().tolist(), values.numpy().tolist(), strict=True))
        return found

    alone = drawn(1, 1)
    assert alone == drawn(1, 3)
    assert len({tuple(values) for values in alone.values()}) == 100
    assert alone[0] != drawn(2, 1)[0]
    twice = data.map(lambda value, y, seed: (tf.random.stateless_uniform([2], seed), y))
    first = next(iter(twice.tf_data()))
    assert first[0][0].numpy().tolist() != drawn(0, 1)[int(first[1][0])]


def test_functions_may_branch_on_tensors_as_in_tf_data():
    def tenfold_from_four(x):
        if x >= 4:
            x = x * 10
        return x

    data = Dataset.from_arrays(np.arange(6), batch_size=6).map(tenfold_from_four)
    assert next(iter(data)).numpy().tolist() == [0, 1, 2, 3, 40, 50]


def test_structures_and_dtypes_come_through():
    data = Dataset.from_arrays(
        {"text": np.array(["a", "bc", "d"]), "small": np.array([1, 2, 3], np.int8)}, batch_size=2
    )
    one, _ = data.tf_data()
    assert one["text"].numpy().tolist() == [b"a", b"bc"]
    assert one["small"].dtype == tf.int8


@pytest.mark.parametrize(
    ("code", "build"),
    [
        (601, lambda: Dataset.from_arrays(np.empty((0, 3)), batch_size=1)),
        (601, lambda: Dataset.from_source([], batch_size=1)),
        (602, lambda: Dataset.from_arrays((X, Y[:99]), batch_size=1)),
        (603, lambda: Dataset.from_arrays(X, batch_size=101)),
        (604, lambda: Dataset.from_tfrecords("/nowhere/*.tfrecord", batch_size=1)),
        (607, lambda: Dataset.from_arrays(X, batch_size=0)),
        (607, lambda: Dataset.from_arrays(X, batch_size=2.0)),  # type: ignore[arg-type]
        (607, lambda: Dataset.from_arrays(np.float32(1), batch_size=1)),
        (607, lambda: Dataset.from_source(iter([1]), batch_size=1)),
        (607, lambda: Dataset.from_source([1], batch_size=1, on_error="ignore")),  # type: ignore[arg-type]
        (
            607,
            lambda: Dataset.from_tf_data(repeated, batch_size=1),
        ),
    ],
)
def test_wrong_input_is_refused_at_once(code, build):
    with pytest.raises(UsageError, match=f"TFRUN-{code}"):
        build()


def test_a_position_outside_the_data_is_refused():
    with pytest.raises(UsageError, match="TFRUN-607"):
        Dataset.from_arrays(X, batch_size=32).position = Position(step=4)


def test_a_stream_of_another_length_is_refused():
    data = Dataset.from_tf_data(lambda: tf.data.Dataset.range(90), batch_size=32, samples=100)
    with pytest.raises(UsageError, match="TFRUN-607"):
        list(data)


class Broken(list):
    def __getitem__(self, index):
        if index in (7, 50):
            raise OSError("bad sector")
        return super().__getitem__(index)


class ConcurrentReads:
    """Sample 0 is read alone; each later one waits until another thread reads, too."""

    def __init__(self, seconds: float) -> None:
        self.barrier, self.met, self.seconds = threading.Barrier(2), 0, seconds

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> np.int64:
        if index and not self.met and not self.barrier.broken:
            try:
                self.barrier.wait(self.seconds)
                self.met += 1
            except threading.BrokenBarrierError:
                pass
        return np.int64(index)


@pytest.mark.parametrize(("concurrent", "seconds"), [(False, 0.5), (True, 20.0)])
def test_a_source_is_read_by_one_thread_at_a_time_unless_it_allows_more(concurrent, seconds):
    source = ConcurrentReads(seconds)
    data = Dataset.from_source(source, batch_size=10, concurrent=concurrent).map(lambda x: x)
    assert np.concatenate([batch.numpy() for batch in data]).tolist() == list(range(100))
    assert (source.met > 0) is concurrent


def test_a_sample_that_cannot_be_read_is_named_or_skipped():
    pairs = Broken((X[i], Y[i]) for i in range(100))
    with pytest.raises(TfrunError, match=r"TFRUN-608.*sample 7 .*bad sector"):
        list(Dataset.from_source(pairs, batch_size=32))
    data = Dataset.from_source(pairs, batch_size=32, on_error="skip")
    for made in (data, data.map(lambda x, y: (x, y))):
        seen = ids(made)
        assert [len(batch) for batch in seen] == [31, 31, 32, 4]
        assert sorted(flat(seen)) == [i for i in range(100) if i not in (7, 50)]
    assert data.skipped == 2


def model(**options):
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")])
    made.compile(keras.optimizers.SGD(1e-6), "mse", **options)
    return made


@pytest.mark.parametrize("per_execution", [1, 3])
def test_fit_reads_each_epoch_whole_and_continues_where_it_is_told(per_execution):
    data = Dataset.from_arrays((X, X[:, :1]), batch_size=32, shuffle=True)
    trained = model(steps_per_execution=per_execution)
    trained.fit(data, epochs=2, verbose=0, validation_data=data)
    assert data.position == Position(epoch=2)
    assert int(trained.optimizer.iterations) == 8
    data.position = Position(epoch=2, step=1)
    steps = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: steps.append(batch)
    )
    trained.fit(data, epochs=3, initial_epoch=2, verbose=0, callbacks=[note])
    assert data.position == Position(epoch=3)
    assert int(trained.optimizer.iterations) == 11
    assert steps[0] == 1
    assert trained.predict(data, verbose=0).shape == (100, 1)
    trained.evaluate(data, verbose=0)
    assert data.position == Position(epoch=3)


def test_fit_is_that_of_the_same_batches_by_hand():
    data = Dataset.from_arrays((X, X[:, :1]), batch_size=32, shuffle=True, seed=9)
    ours, theirs = model(), model()
    ours.fit(data, epochs=2, verbose=0)
    for epoch in range(2):
        for batch in data.tf_data(epoch=epoch):
            theirs.train_on_batch(*batch)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_steps_per_epoch_is_respected_and_the_stream_goes_on():
    data = Dataset.from_arrays((X, X[:, :1]), batch_size=32, shuffle=True)
    model().fit(data, epochs=3, steps_per_epoch=3, verbose=0)
    assert data.position == Position(epoch=2, step=1)


def test_class_weights_are_applied():
    labels = (Y % 2)[:, None].astype("float32")
    data = Dataset.from_arrays((X, labels), batch_size=50)
    weighted = model().fit(data, class_weight={0: 0.0, 1: 0.0}, verbose=0)
    assert weighted.history["loss"] == [0.0]


def test_labels_beside_a_dataset_are_refused():
    with pytest.raises(UsageError, match="TFRUN-607"):
        model().fit(Dataset.from_arrays((X, Y), batch_size=32), Y, verbose=0)


def test_a_failing_source_ends_fit_with_its_own_error():
    pairs = Broken((X[i], X[i, :1]) for i in range(100))
    with pytest.raises(TfrunError, match="TFRUN-608"):
        model().fit(Dataset.from_source(pairs, batch_size=50), verbose=0)
    with tf.distribute.MirroredStrategy(["cpu:0"]).scope():
        looks_first = model()  # at a batch, for its shapes
    with pytest.raises(TfrunError, match="TFRUN-608"):
        looks_first.fit(Dataset.from_source(pairs, batch_size=50), verbose=0)


def test_a_failure_of_long_ago_is_not_taken_for_another():
    data = Dataset.from_source(Broken((X[i], Y[i]) for i in range(100)), batch_size=32)
    with pytest.raises(TfrunError, match="TFRUN-608") as failed:
        list(data)
    with pytest.raises(tf.errors.InternalError), data.coded_errors():
        raise tf.errors.InternalError(None, None, "something else")
    # It was read ahead before the context began.
    with pytest.raises(TfrunError, match="TFRUN-608"), data.coded_errors():
        raise failed.value.__cause__


def test_two_replicas_in_one_process_get_consecutive_parts():
    """Needs two devices, so its process is its own."""
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", TWO_REPLICAS], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]


TWO_REPLICAS = """
import numpy as np, tensorflow as tf
from tfrun import Dataset
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
data = Dataset.from_arrays(np.arange(99), batch_size=32, shuffle=True)
seen = []
for batch in strategy.experimental_distribute_dataset(data):
    parts = strategy.experimental_local_results(batch)
    assert len(parts) == 2
    seen.append(np.concatenate(parts).tolist())
assert seen == [data.sample_ids(0, step).tolist() for step in range(4)], seen
"""


def test_what_reads_a_dataset_that_has_been_deleted_is_told_so():
    data: Any = Dataset.from_arrays((X, Y), batch_size=10).tf_data()
    read = tf.data.experimental.from_variant(data._variant_tensor, data.element_spec)
    assert len(ids(read)) == 10
    del data
    gc.collect()
    with pytest.raises(tf.errors.OpError, match=r"TFRUN-619.*Keep the dataset in a variable"):
        ids(read)
