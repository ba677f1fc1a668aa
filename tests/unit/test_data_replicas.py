"""Four replicas on one to four workers: every replica has the same samples in every step."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.common import global_state
from tensorflow.python.distribute import distribute_lib

import tfrun
from tfrun.data import training_place
from tfrun.data.keras import arrays, division
from tfrun.data.keras.feed import FeedEpochIterator
from tfrun.data.keras.fit_plan import FitPlan, Resume
from tfrun.data.ledger.proof import examine
from tfrun.engine.communication import CommunicationOptions
from tfrun.engine.multi_worker import HostExtended, MultiWorkerMirrored, TFConfigClusterResolver
from tfrun.job.errors import UsageError
from tfrun.job.settings import settings
from tfrun.patches.apply import apply
from tfrun.patches.rows_tensorflow import DATA

REPLICAS = 4
ROWS, BATCH = 23, 10  # batches of 10, 10 and 3: no piece of the last one for the fourth replica
X = np.arange(ROWS * 2, dtype="float32").reshape(ROWS, 2)
Y = np.arange(ROWS) % 3
WEIGHTS = np.linspace(0, 1, ROWS, dtype="float32")

Options = dict[str, Any]


class Reading(MultiWorkerMirrored):
    """The strategy of one worker of several, which reads and does not meet the others."""

    def __init__(self) -> None:
        extended = HostExtended(self, TFConfigClusterResolver(), CommunicationOptions())
        distribute_lib.Strategy.__init__(self, extended)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, work_under) -> Callable[..., Reading]:
    """Makes this process a worker of a job, and returns its strategy."""
    apply(DATA)

    def of(rank: int, size: int, replicas: int = REPLICAS, **stated: Any) -> Reading:
        hosts = [f"127.0.0.1:{20_000 + number}" for number in range(size)]
        task = {"type": "worker", "index": rank}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": hosts}, "task": task}))
        work_under(replicas=replicas, **stated)
        # As in a worker, which has made as many datasets as any other.
        for room in (arrays, training_place):
            monkeypatch.setattr(room, "_numbers", itertools.count())
        keras.utils.set_random_seed(1)
        return Reading()

    return of


def fit(**options: Any) -> Options:
    defaults = {"y": None, "sample_weight": None, "batch_size": None, "steps_per_epoch": None}
    return {**defaults, "shuffle": False, "class_weight": None, "steps_per_execution": 1, **options}


def evaluate(**options: Any) -> Options:
    defaults = {"y": None, "sample_weight": None, "batch_size": None, "steps_per_epoch": None}
    return {**defaults, "shuffle": False, "steps_per_execution": 1, **options}


def pipeline() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)


def shuffled(*, repeat: bool = False) -> tf.data.Dataset:
    made = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(ROWS)
    return (made.repeat() if repeat else made).batch(BATCH)


def mapped() -> tf.data.Dataset:
    return pipeline().unbatch().map(lambda x, y: (x + 1, y)).batch(BATCH)


def sparse() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(X), Y)).batch(BATCH)


def generator(batches: int = 6) -> Iterator[Any]:
    for number in range(batches):
        rows = 3 if number % 3 == 2 else BATCH
        yield np.full((rows, 2), number, "float32") + np.arange(rows)[:, None], np.arange(rows)


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return X[rows], Y[rows], WEIGHTS[rows]


def ours(**options: Any) -> tfrun.Dataset:
    return tfrun.Dataset.from_arrays((X, Y), batch_size=BATCH, **options)


THRICE = {0: 1.0, 1: 2.0, 2: 3.0}
KINDS: dict[str, Callable[[], Options]] = {
    "arrays": lambda: fit(x=X, y=Y, sample_weight=WEIGHTS, batch_size=BATCH),
    "arrays, shuffled": lambda: fit(
        x=X, y=Y, batch_size=BATCH, shuffle=True, class_weight=THRICE, steps_per_epoch=2
    ),
    "fewer rows than replicas": lambda: fit(x=X, y=Y, batch_size=3, steps_per_execution=2),
    "Dataset": lambda: fit(x=ours(shuffle=True).map(lambda x, y: (x * 2, y)), class_weight=THRICE),
    "Dataset of a pipeline": lambda: fit(
        x=tfrun.Dataset.from_tf_data(lambda: pipeline().unbatch(), batch_size=BATCH)
    ),
    "pipeline": lambda: fit(x=shuffled()),
    "pipeline, mapped": lambda: fit(x=mapped(), class_weight=THRICE),
    "pipeline without an end": lambda: fit(x=shuffled(repeat=True), steps_per_epoch=3),
    "generator": lambda: fit(x=generator(), steps_per_epoch=3),
    "generator with an end": lambda: fit(x=generator(3)),
    "PyDataset": lambda: fit(x=Batches()),
    "evaluate": lambda: evaluate(x=X, y=Y, sample_weight=WEIGHTS, batch_size=BATCH),
    "evaluate a Dataset": lambda: evaluate(x=ours()),
}
Step = list[list[np.ndarray]]  # the leaves of each element


def epochs(strategy: Reading, options: Options, per_step: int, count: int = 2) -> list[list[Step]]:
    """The elements that one worker reads, by epoch and step."""
    iterator = FeedEpochIterator(distribute_strategy=strategy, **options)
    iterator.reset()
    found = []
    for _ in range(count):
        steps: list[Step] = []
        with iterator.catch_stop_iteration():
            for begin, end, elements in iterator.enumerate_epoch():
                for step in range(begin, end + 1):
                    if iterator.num_batches is not None and step >= iterator.num_batches:
                        break
                    steps.append([leaves(strategy, elements) for _ in range(per_step)])
        found.append(steps)
    return found


def leaves(strategy: Reading, iterator: Any) -> list[np.ndarray]:
    """The next element, read without asking the workers that are not there."""
    read = division.element if settings().replicas else read_here
    found = tf.nest.flatten(
        tf.nest.map_structure(strategy.experimental_local_results, read(iterator))
    )
    dense = (tf.sparse.to_dense(leaf) if is_sparse(leaf) else leaf for leaf in found)
    return [leaf.numpy() for leaf in dense if leaf is not None]


def is_sparse(leaf: Any) -> bool:
    return isinstance(leaf, tf.SparseTensor)


def read_here(iterator: Any) -> Any:
    return iterator._get_next_no_partial_batch_handling()


def of_all(worker, options: Callable[[], Options], size: int, replicas: int = REPLICAS):
    """The pieces of each replica, by epoch and step."""
    by_worker = []
    for rank in range(size):
        strategy = worker(rank, size, replicas)
        per_step = division.per_step(strategy, "replicas")
        by_worker.append(epochs(strategy, options(), per_step))
        global_state.clear_session()
    return [
        [list(itertools.chain(*parts)) for parts in zip(*steps, strict=True)]
        for steps in zip(*by_worker, strict=True)
    ]


def assert_equal(found: Any, wanted: Any) -> None:
    assert [len(steps) for steps in found] == [len(steps) for steps in wanted]
    for step, other in zip(itertools.chain(*found), itertools.chain(*wanted), strict=True):
        assert len(step) == len(other) == REPLICAS
        for piece, same in zip(step, other, strict=True):
            for leaf, wanted_leaf in zip(piece, same, strict=True):
                assert leaf.dtype == wanted_leaf.dtype
                assert np.array_equal(leaf, wanted_leaf)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_workers_reads_the_same_pieces(kind: str, worker) -> None:
    wanted = of_all(worker, KINDS[kind], REPLICAS, replicas=0)  # as ever: one on each worker
    assert len(wanted[0]) >= 2
    for size in (1, 2, 3, 4) if kind in ("pipeline", "generator") else (1, 3):
        assert_equal(of_all(worker, KINDS[kind], size), wanted)


def test_the_pieces_make_up_each_batch(worker) -> None:
    for kind, sizes in (("evaluate a Dataset", [1, 1, 1, 0]), ("evaluate", [1, 1, 1, 0])):
        steps, _ = of_all(worker, KINDS[kind], 3)
        joined = [np.concatenate([piece[0] for piece in step]) for step in steps]
        assert all(map(np.array_equal, joined, [X[:BATCH], X[BATCH : 2 * BATCH], X[2 * BATCH :]]))
        assert len(steps) == 3
        assert [len(piece[0]) for piece in steps[-1]] == sizes


@pytest.mark.parametrize(("size", "replicas"), [(4, 0), (1, 4), (3, 4)])
def test_sparse_batches_are_divided_where_a_replica_has_no_row(size, replicas, worker) -> None:
    for steps in of_all(worker, lambda: fit(x=sparse()), size, replicas):
        joined = [np.concatenate([piece[0] for piece in step]) for step in steps]
        assert all(map(np.array_equal, joined, [X[:BATCH], X[BATCH : 2 * BATCH], X[2 * BATCH :]]))
        assert [len(piece[1]) for piece in steps[-1]] == [1, 1, 1, 0]


@pytest.mark.parametrize("kind", ["arrays", "Dataset", "pipeline", "generator"])
def test_predict_divides_among_workers(kind: str, worker) -> None:
    """An element a step, in the order of the workers."""

    def read(rank: int, replicas: int) -> list[list[Step]]:
        options = KINDS[kind]()
        given = {"x": options["x"], "batch_size": options["batch_size"], "shuffle": False}
        given |= {"steps_per_epoch": 1, "steps_per_execution": 1}
        return epochs(worker(rank, 3, replicas), given, 1, count=1)

    rows = 0
    for rank in range(3):
        (((element,),),), (((wanted,),),) = read(rank, REPLICAS), read(rank, 0)
        assert all(map(np.array_equal, element, wanted))
        rows += len(element[0])
    assert rows == BATCH


def test_a_resume_reads_as_many_elements_for_a_step(worker) -> None:
    """Steps that are done are passed by in steps of the job, not in elements of a worker."""
    for kind in ("pipeline", "generator", "arrays"):
        strategy = worker(0, 3)
        (whole, _), per_step = epochs(strategy, KINDS[kind](), 2), 2
        strategy = worker(0, 3)
        plan = FitPlan(resume=Resume(steps=1))
        with plan.runs():
            ((first, *rest), _) = epochs(strategy, KINDS[kind](), per_step)
        assert len(rest) == len(whole) - 2
        for leaf, other in zip(first[0] + first[1], whole[1][0] + whole[1][1], strict=True):
            assert np.array_equal(leaf, other)


def test_what_is_not_divided_by_batch_is_refused(worker) -> None:
    options = tf.data.Options()
    for policy in ("FILE", "OFF"):
        options = tf.data.Options()
        chosen = getattr(tf.data.experimental.AutoShardPolicy, policy)
        options.experimental_distribute.auto_shard_policy = chosen
        with pytest.raises(UsageError, match=f"TFRUN-107.*{policy}"):
            epochs(worker(0, 2), fit(x=pipeline().with_options(options)), 2)


def test_a_loop_of_the_scripts_own_has_one_replica_a_worker(worker) -> None:
    strategy = worker(0, 2)
    for data in (pipeline(), ours()):
        with pytest.raises(UsageError, match=r"TFRUN-107.*4 replicas are on 2 workers"):
            strategy.experimental_distribute_dataset(data)
    strategy = worker(0, REPLICAS)
    assert strategy.experimental_distribute_dataset(pipeline()) is not None


def test_the_ledger_knows_the_samples_of_all_replicas_of_a_worker(worker, tmp_path) -> None:
    for rank in range(3):
        strategy = worker(rank, 3, run_dir=str(tmp_path), ledger=1)
        epochs(
            strategy,
            fit(x=ours(shuffle=True), class_weight=THRICE),
            division.per_step(strategy, "replicas"),
        )
    found = examine(tmp_path)
    assert [epoch.consumed for epoch in found.epochs] == [ROWS, ROWS]
    assert found.exact and not found.no_tape
    assert {epoch.worlds for epoch in found.epochs} == {(3,)}
