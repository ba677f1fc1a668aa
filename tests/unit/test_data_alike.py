"""Arrays that differ between workers are found by few bytes; what only looks different is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfrun.data.keras import alike

SHAPE = (4000, 30)


def unseeded(number: int) -> np.ndarray:
    return np.random.default_rng(number).random(SHAPE)


def found(*workers: dict[str, Any]) -> list[str]:
    """What all workers find together; each one's arguments of `fit`."""
    if len({alike.digest_of_all(arguments) for arguments in workers}) == 1:
        return []
    made = [[alike.sketch(given.get(name)) for name in alike.ARGUMENTS] for given in workers]
    exact = np.array([[number for number, _ in row] for row in made], np.int64)
    return alike.differing(exact, np.array([[values for _, values in row] for row in made]))


def pipeline(data: Any, *, off: bool = False, seed: int = 3) -> tf.data.Dataset:
    rows = tf.data.Dataset.from_tensor_slices(data).shuffle(10, seed=seed)
    made = rows.map(lambda *x: x).batch(4)
    options = tf.data.Options()
    if off:
        policy = tf.data.experimental.AutoShardPolicy.OFF
        options.experimental_distribute.auto_shard_policy = policy
    return made.with_options(options)


SAME = {
    "nothing": lambda number: None,
    "seeded": lambda number: unseeded(7),
    # Vectors of another length on another machine's processor.
    "rounded": lambda number: unseeded(7) * (1 + 1e-13 * number),
    "a policy of one's own": lambda number: pipeline(unseeded(number), off=True),
    "files": lambda number: pipeline([f"/scratch/{number}/a.png", f"/scratch/{number}/b.png"]),
    "seeded noise": lambda number: pipeline(unseeded(7)).map(
        lambda x: x + tf.random.uniform([], dtype=x.dtype)
    ),
    "a generator": lambda number: (row for row in unseeded(number)),
    "objects": lambda number: np.array([object(), None], object),
    "a structure": lambda number: np.frombuffer(
        bytes([1, number, 0, 0, 0, 1]) * 2,
        np.dtype({"names": ["a"], "formats": ["u1"], "itemsize": 6}),
    ),
    "not a number": lambda number: np.full(SHAPE, np.nan),
}
OTHER = {
    "unseeded": unseeded,
    "float32": lambda number: unseeded(number).astype("float32"),
    "shuffled otherwise": lambda number: pipeline(unseeded(7), seed=number),
    "ordered otherwise": lambda number: np.random.default_rng(number).permutation(unseeded(7)),
    "transposed": lambda number: unseeded(number).T,
    "every second": lambda number: unseeded(number)[::2],
    "labels": lambda number: np.random.default_rng(number).integers(0, 2, 4000),
    "one of few": lambda number: np.arange(4) == number,
    "a part by rank": lambda number: unseeded(7)[number::2],
    "another length": lambda number: np.zeros(10 + number),
    "a dictionary": lambda number: {"a": unseeded(7), "b": unseeded(number)},
    "a tensor": lambda number: tf.constant(unseeded(number)),
    "tensors of text": lambda number: tf.constant([f"{number}", "b"]),
    "texts": lambda number: np.array([f"{number} {row}" for row in range(9)], object),
    "bytes": lambda number: np.array([b"%d" % number]),
    "sparse": lambda number: (unseeded(number) > 0.95).astype(float),
    "a pipeline": lambda number: pipeline(unseeded(number)),
    "a pipeline of pairs": lambda number: pipeline((unseeded(7), unseeded(number))),
    "files in another order": lambda number: pipeline([f"/a/{i ^ number}.png" for i in range(4)]),
    "other texts": lambda number: pipeline([f"a {number}"] * 4),
    "fewer files": lambda number: pipeline(["a"] * (4 - number)),
    "zipped": lambda number: tf.data.Dataset.zip(pipeline(unseeded(7)), pipeline(unseeded(number))),
}


@pytest.mark.parametrize("case", SAME)
def test_what_is_meant_is_no_difference(case: str) -> None:
    make = SAME[case]
    assert (
        found(*({"x": make(number), "validation_data": make(number)} for number in range(3))) == []
    )


@pytest.mark.parametrize("case", OTHER)
def test_other_arrays_are_found_and_named(case: str) -> None:
    make = OTHER[case]
    workers = [{"x": make(0), "y": np.zeros(3), "validation_data": (make(n), 1)} for n in (0, 0, 1)]
    assert found(*workers) == ["validation_data"]
    workers = [{"x": make(n), "y": np.zeros(3)} for n in (0, 1)]
    assert found(*workers) == ["x"]


def test_tensors_are_not_copied() -> None:
    """A pipeline holds the whole data; to copy it takes longer than many steps."""
    tensor = tf.constant(unseeded(1))
    pairs = [(tensor, tensor), (pipeline(tensor),) * 2]
    for one, two in pairs:
        first, second = alike.arrays_of(one)[-1], alike.arrays_of(two)[-1]
        assert np.shares_memory(first, second)
    assert alike.arrays_of(tf.cast(tensor, tf.bfloat16)) == []


@pytest.mark.parametrize("rows", [tf.ragged.constant([[1], [2, 3]]), tf.sparse.eye(2)])
def test_of_rows_that_are_no_arrays_the_others_are_compared(rows: Any) -> None:
    pairs = tf.data.Dataset.from_tensor_slices((rows, [5, 6]))
    assert [array.tolist() for array in alike.arrays_of(pairs)] == [[5, 6]]


def test_few_bytes_are_looked_at_of_a_large_file(tmp_path: Path) -> None:
    """And the last ones too; the file has holes, so that it takes no room."""
    file = np.memmap(tmp_path / "large", "u1", "w+", shape=(1 << 32,))
    before = alike.digest_of_all({"x": file})
    assert alike.sample(file, alike.BYTES).nbytes <= alike.BYTES
    file[-1] = 1
    assert alike.digest_of_all({"x": file}) != before
