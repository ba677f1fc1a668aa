"""Once, atomic, rows only: on this machine's own device, which takes the place of the servers."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend.common.variables import Variable as KerasVariable
from keras.src.backend.tensorflow import numpy as keras_numpy
from tensorflow.python.distribute.sharded_variable import ShardedVariable

from tfrun.ps import server_step, updates, variables
from tfrun.ps.update_recorder import UpdateRecorder, recording

HERE = "/job:localhost/replica:0/task:0/device:CPU:0"


def marked(function):
    """A step's function, which takes its mark."""
    return tf.function(function, input_signature=[server_step.MARK], autograph=False)


def mark(number: int, place: int | None = None) -> tf.Tensor:
    return tf.constant(server_step.mark_of(number, place), tf.int64)


def test_a_step_is_applied_once_however_often_it_is_tried() -> None:
    ledger = server_step.AppliedSteps([HERE], totals=1)
    weight = tf.Variable([0.0, 0.0])

    @marked
    def step(mark):
        version = ledger.version()
        gradient = tf.cast(tf.stack([mark // server_step.RING] * 2), tf.float32)
        work = server_step.Work(
            device=HERE, inputs=[gradient], run=lambda g: [variables.add(weight, g)]
        )
        return ledger.apply(mark, version, tf.constant([2.0], tf.float64), [work])

    for number in (1, 1, 2, 3, 2, 1, 3):
        step(mark(number))
    assert weight.numpy().tolist() == [6.0, 6.0]
    assert ledger.read()[[0, 1, -1]].tolist() == [3.0, 3.0, 6.0]
    step(mark(server_step.RING + 1))
    assert ledger.read()[0] == 4, "a place of the ring is used again"
    ledger.clear_metrics()
    assert ledger.read()[[0, -1]].tolist() == [4.0, 0.0]


def test_counts_of_many_threads_are_exact() -> None:
    ledger = server_step.AppliedSteps([HERE], totals=300)
    table = tf.Variable(tf.zeros([50, 8]))
    rows = tf.range(50, dtype=tf.int64)

    @marked
    def step(mark):
        version = ledger.version()
        work = server_step.Work(
            device=HERE,
            inputs=[tf.ones([50, 8])],
            run=lambda g: [variables.add(table, g, rows)],
        )
        return ledger.apply(mark, version, tf.ones([300], tf.float64), [work])

    steps = 2000
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: step(mark(n)), range(steps)))
    found = ledger.read()
    assert found[0] == sum(ledger.staleness()) == steps
    assert (found[1 + server_step.STALENESS :] == steps).all()
    assert (table.numpy() == steps).all()


def test_each_worker_numbers_the_elements_of_its_own_part() -> None:
    """A place each: whoever is far behind is not taken for a step that comes again."""
    ledger = server_step.AppliedSteps([HERE], totals=0)
    seen = tf.Variable(tf.zeros([3]))

    @marked
    def step(mark):
        work = server_step.Work(
            device=HERE,
            inputs=[tf.one_hot(mark % server_step.RING, 3)],
            run=lambda g: [variables.add(seen, g)],
        )
        none = tf.zeros([0], tf.float64)
        return ledger.apply(mark, ledger.version(), none, [work])

    for worker, number in ((0, 10), (0, 11), (1, 10), (0, 11), (1, 11), (1, 10), (2, 500)):
        step(mark(number, worker))
    assert seen.numpy().tolist() == [2.0, 2.0, 1.0]
    assert ledger.read()[0] == 5


def test_what_a_step_does_on_a_server_is_one_op() -> None:
    """When the first half fails, TensorFlow no longer lowers conditions, and `one_op` can go."""

    @tf.function
    def plain(flag):
        return tf.cond(flag, lambda: tf.constant(1), lambda: tf.constant(0))

    @tf.function(autograph=False)
    def ours(flag):
        return server_step.one_op(flag, lambda: tf.constant(1))

    def lowered(function):
        graph = function.get_concrete_function(tf.TensorSpec([], tf.bool)).graph
        ops = [op for op in graph.get_operations() if op.type in ("If", "StatelessIf")]
        return [op.get_attr("_lower_using_switch_merge") for op in ops]

    assert lowered(plain) == [True]
    assert lowered(ours) == [False]


def shards(rows: int = 7) -> tuple[ShardedVariable, np.ndarray]:
    value = np.random.RandomState(0).rand(rows, 3).astype("float32")
    return ShardedVariable([tf.Variable(value[:4]), tf.Variable(value[4:])]), value


def test_rows_of_shards_are_those_of_the_table_and_so_are_their_gradients() -> None:
    table, value = shards()
    ids = tf.constant([[6, 0], [4, 3], [0, 6]])
    with tf.GradientTape() as tape:
        found = variables.lookup(table, ids)
        loss = tf.reduce_sum(found * tf.reshape(tf.range(18.0), [3, 2, 3]))
    assert (found.numpy() == value[ids.numpy()]).all()
    pieces = tape.gradient(loss, list(table.variables))
    dense = np.concatenate([tf.convert_to_tensor(piece).numpy() for piece in pieces])
    expected = np.zeros_like(value)
    np.add.at(expected, ids.numpy(), np.arange(18.0).reshape(3, 2, 3))
    assert dense == pytest.approx(expected)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adagrad", "Ftrl", "RMSprop", "Lion"])
def test_recorded_changes_are_the_optimizers_own(name: str) -> None:
    made = [keras.Variable(np.full((4, 2), 3.0, "float32")) for _ in range(2)]
    optimizers = [getattr(keras.optimizers, name)(0.1) for _ in made]
    for optimizer, variable in zip(optimizers, made, strict=True):
        optimizer.build([variable])
    gradient = tf.constant([[1.0, -2.0]] * 4)
    for _ in range(3):
        optimizers[0].apply_gradients([(gradient, made[0])])
        ours, rate = optimizers[1], optimizers[1].learning_rate
        known = {id(v): tf.identity(v._value) for v in ours.variables if v.shape.rank == 0}
        recorder = UpdateRecorder(ours, made[1], 0, tf.range(4, dtype=tf.int64), known)
        with recording(ours, recorder):
            ours.update_step(gradient, recorder.target, rate)
        for target, delta in recorder.changes():
            variables.add(target, delta, tf.range(4, dtype=tf.int64))
        ours.iterations.assign_add(1)
    assert made[1].numpy() == pytest.approx(made[0].numpy(), abs=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.SGD(0.1),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    ],
)
def test_updates_in_one_op_are_the_optimizers_own(make) -> None:
    made = [keras.Variable(np.full((4, 2), 3.0, "float32")) for _ in range(2)]
    optimizers = [make() for _ in made]
    for optimizer, variable in zip(optimizers, made, strict=True):
        optimizer.build([variable])

    @tf.function(autograph=False)
    def in_one(gradient):
        ours = optimizers[1]
        op = updates.fused_update(ours, made[1], 0, gradient, ours.learning_rate)
        assert op is not None
        with tf.control_dependencies([op]):
            return tf.constant(0)

    for number in range(3):
        gradient = tf.constant([[1.0 - number, -2.0]] * 4)
        optimizers[0].apply_gradients([(gradient, made[0])])
        in_one(gradient)
        optimizers[1].iterations.assign_add(1)
        for one, other in zip(optimizers[1].variables, optimizers[0].variables, strict=True):
            assert one.numpy() == pytest.approx(other.numpy(), rel=1e-6)
        assert made[1].numpy() == pytest.approx(made[0].numpy(), rel=1e-6)


def test_what_one_op_does_not_do_is_recorded() -> None:
    variable = keras.Variable(np.ones((2, 2), "float32"))
    for optimizer in (
        keras.optimizers.Adam(),
        keras.optimizers.SGD(weight_decay=0.1),
        keras.optimizers.SGD(use_ema=True),
        keras.optimizers.AdamW(),
    ):
        optimizer.build([variable])
        rate = optimizer.learning_rate
        assert updates.fused_update(optimizer, variable, 0, tf.ones([2, 2]), rate) is None


def test_slices_of_a_row_are_summed() -> None:
    slices = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([5, 3, 5]))
    values, rows = updates.unique_rows(slices)
    assert dict(zip(rows.numpy().tolist(), values.numpy()[:, 0].tolist(), strict=True)) == {
        5: 5.0,
        3: 2.0,
    }


def test_keras_still_needs_the_repairs() -> None:
    """When this fails, parts of engine/parameter_server can go."""
    assert "self.assign(self + value)" in inspect.getsource(KerasVariable.assign_add)
    take = inspect.unwrap(keras_numpy.take)
    assert "x = convert_to_tensor(x)" in inspect.getsource(take)
