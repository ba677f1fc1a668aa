"""Training goes on at the sample that comes next, in batches of any size."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrun.data.dataset import Dataset
from tfrun.data.keras.global_batch import reads_of, reads_of_fit
from tfrun.data.order.other_batches import Reads, ResumePoint, where
from tfrun.data.order.position import Position
from tfrun.data.order.shards import Replicas
from tfrun.data.pipeline import batches
from tfrun.job.errors import UsageError

ARRAYS = Reads(batch=14, samples=100, steps=8, exact=True)
PIPELINE = Reads(batch=14, steps=8)
NOT_DEFINED = "not defined"
CASES: dict[str, tuple[Reads, Reads | str, dict[str, Any], Any]] = {
    "nothing has changed": (ARRAYS, ARRAYS, {"step": 5}, (5, 0)),
    "a batch that divides what is done": (ARRAYS, "7 of 100", {"step": 5}, (10, 0)),
    "a batch that does not": (ARRAYS, "9 of 100", {"step": 5}, (7, 7)),
    "a larger one": (ARRAYS, "64 of 100", {"step": 5}, (1, 6)),
    "between two epochs": (ARRAYS, "9 of 100", {"step": 0, "epochs": 3}, (0, 0)),
    "other data between two epochs": (ARRAYS, "9 of 50", {"step": 0, "epochs": 3}, (0, 0)),
    "all steps of the epoch": (ARRAYS, "9 of 50", {"step": 8, "trained": True}, (6, 0)),
    "other data": (ARRAYS, "14 of 90", {"step": 5}, NOT_DEFINED),
    "fewer data than was done": (ARRAYS, "14 of 30", {"step": 5}, NOT_DEFINED),
    "a pipeline": (PIPELINE, replace(PIPELINE, batch=7, steps=15), {"step": 5}, (10, 0)),
    "it has no place within a batch": (
        PIPELINE,
        replace(PIPELINE, batch=9, steps=12),
        {"step": 5},
        NOT_DEFINED,
    ),
    "it is another amount": (
        PIPELINE,
        replace(PIPELINE, batch=7, steps=8),
        {"step": 5},
        NOT_DEFINED,
    ),
    "it has more batches": (PIPELINE, replace(PIPELINE, steps=9), {"step": 5}, NOT_DEFINED),
    "it shuffles batches": (
        replace(PIPELINE, ordered=False),
        replace(PIPELINE, batch=7, steps=15, ordered=False),
        {"step": 5},
        NOT_DEFINED,
    ),
    "an epoch is some number of steps": (
        replace(PIPELINE, steps=10, whole=False),
        replace(PIPELINE, steps=10, whole=False, batch=7),
        {"step": 0, "epochs": 1},
        NOT_DEFINED,
    ),
    "and nothing of it is done": (
        replace(PIPELINE, steps=10, whole=False),
        replace(PIPELINE, steps=10, whole=False, batch=7),
        {"step": 0},
        (0, 0),
    ),
    "nobody knows": (Reads(), Reads(), {"step": 5}, (5, 0)),
    "a PyDataset's batches": (Reads(steps=8), Reads(steps=9), {"step": 5}, NOT_DEFINED),
}


def reads(text: str | Reads) -> Reads:
    """Of "batch of samples"."""
    if isinstance(text, Reads):
        return text
    batch, samples = map(int, text.split(" of "))
    return Reads(batch=batch, samples=samples, steps=-(-samples // batch), exact=True)


@pytest.mark.parametrize("name", CASES)
def test_where(name: str) -> None:
    before, now, at, expected = CASES[name]
    now = reads(now)
    found = where(before.kept(before.seen(at["step"])), now, **at)
    if expected == NOT_DEFINED:
        assert found.doubt
        assert 0 <= found.step <= (now.steps or found.step)
    else:
        assert found == ResumePoint(*expected)


def test_a_state_of_an_older_tfrun_goes_on_at_its_step() -> None:
    assert where({}, ARRAYS, step=5) == ResumePoint(5)


def test_cut_off_twice_before_a_step_of_the_new_size_is_done() -> None:
    first = where(ARRAYS.kept(70), reads("9 of 100"), step=5)
    then = reads("9 of 100").kept(70)
    assert where(then, reads("9 of 100"), step=first.step) == first == ResumePoint(7, 7)
    assert where(then, ARRAYS, step=first.step) == ResumePoint(5, 0)
    assert where(then, reads("20 of 100"), step=first.step) == ResumePoint(3, 10)


X = np.arange(100)


class EightBatches(keras.utils.PyDataset):
    @property
    def num_batches(self) -> int:
        return 8


def datasets() -> dict[str, Dataset]:
    plain = Dataset.from_arrays(X, batch_size=9, shuffle=True, seed=3)
    stream = Dataset.from_tf_data(lambda: tf.data.Dataset.range(100), batch_size=9)
    return {
        "arrays": plain,
        "even": Dataset.from_arrays(X, batch_size=20, shuffle=True, seed=3),
        "mapped": plain.map(lambda x: x + 0),
        "random": plain.map(lambda x, seed: x + 0 * seed[0]),
        "source": Dataset.from_source(X.tolist(), batch_size=9, shuffle=True, seed=3),
        "skipping": Dataset.from_source(X.tolist(), batch_size=9, seed=3, on_error="skip"),
        "stream": stream,
        "mapped stream": stream.map(lambda x, seed: x + 0 * seed[0]),
    }


@pytest.mark.parametrize("name", datasets())
def test_the_first_batch_lacks_what_is_done(name: str) -> None:
    data = datasets()[name]
    step, skip = 3, 4
    whole = data.tf_data(epoch=2)
    expected = np.concatenate(list(whole.as_numpy_iterator()))[step * data.batch_size + skip :]
    for total, count in ((1, 1), (2, 1), (3, 1), (4, 2)):
        start = 2 * data.steps_per_epoch + step
        stop = 3 * data.steps_per_epoch
        by_pipeline = []
        for first in range(0, total, count):
            here = Replicas(first=first, count=count, total=total)
            made = list(batches(data.plan, here, start, stop, skip).as_numpy_iterator())
            assert len(made) == (stop - start) * count
            by_pipeline.append([made[n : n + count] for n in range(0, len(made), count)])
        steps = [
            np.concatenate([x for parts in of_step for x in parts])
            for of_step in zip(*by_pipeline, strict=True)
        ]
        assert [len(one) for one in steps[:2]] == [data.batch_size - skip, data.batch_size]
        np.testing.assert_array_equal(np.concatenate(steps), expected)


def test_a_dataset_is_set_to_a_sample() -> None:
    data = datasets()["arrays"]
    data.position = Position(epoch=1, step=11)  # one sample is left
    assert [len(batch) for batch in data] == [1]
    data.position = Position(epoch=1, step=10, skip=8)
    assert [len(batch) for batch in data] == [1, 1]
    assert data.position == Position(epoch=2)
    for wrong in (Position(step=11, skip=1), Position(step=1, skip=9), Position(skip=-1)):
        with pytest.raises(UsageError, match="TFRUN-607"):
            data.position = wrong


def test_what_is_known_of_data() -> None:
    assert reads_of_fit({"x": X, "batch_size": 14}, on_servers=False) == ARRAYS
    assert not reads_of_fit({"x": X, "batch_size": 14}, on_servers=True).exact
    by_steps = reads_of_fit({"x": X, "batch_size": 14, "steps_per_epoch": 3}, on_servers=False)
    assert (by_steps.steps, by_steps.whole) == (3, False)
    pipeline = tf.data.Dataset.range(100)
    assert reads_of(pipeline.shuffle(9).batch(14).prefetch(2)) == PIPELINE
    assert not reads_of(pipeline.batch(14).shuffle(9).map(lambda x: x)).ordered
    endless = reads_of_fit(
        {"x": pipeline.repeat().batch(14), "steps_per_epoch": 5}, on_servers=False
    )
    assert endless == replace(PIPELINE, steps=5, whole=False)
    assert reads_of_fit({"x": EightBatches()}, on_servers=False) == Reads(steps=8)
    assert reads_of_fit({"x": iter([])}, on_servers=False) == Reads(exact=True)
    assert Reads.of({**asdict(ARRAYS), "seen": 3, "of tomorrow": 1}) == ARRAYS
