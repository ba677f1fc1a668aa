"""How many steps of a `fit` go into one call of TensorFlow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrun.data.keras.fit_plan import together
from tfrun.engine import multi_step_function
from tfrun.job.settings import WorkerSettings
from tfrun.patches.apply import apply
from tfrun.patches.rows_keras import TRAINER
from tfrun.train.steps_per_execution import (
    MOST,
    TIMED,
    UNTIMED,
    FitPace,
    chosen,
    every_so_many_steps,
    room,
    sees_every_step,
)

X = np.random.RandomState(0).rand(60, 4).astype("float32")


@pytest.mark.parametrize(
    ("step", "python", "steps"),
    [
        (0.002, 0.0012, MOST),  # a tiny model: as many as there may be
        (0.0195, 0.0015, 5),  # a small one: Python's part becomes 2 % of a step
        (0.020, 0.0003, 1),  # that is less already
        (0.5, 0.05, 1),  # a step that takes long is long enough for whoever wants to stop it
        (0.04, 0.04, 2),  # nothing was seen inside: it may be on a GPU
    ],
)
def test_python_becomes_a_small_part_of_a_step(step: float, python: float, steps: int) -> None:
    assert chosen(step, python) == steps


def test_no_execution_goes_over_a_step_at_which_something_is_due() -> None:
    assert room(7, [10, 4]) == 1
    assert room(8, [10, 4]) == 2
    assert room(20, [10]) == 10
    assert room(7, []) == MOST


def test_what_is_due_is_read_from_the_options() -> None:
    every = WorkerSettings(snapshot_every="6", sync_check=4, checkpoint_every="9")
    assert every_so_many_steps(every) == [6, 4]
    assert every_so_many_steps(replace(every, checkpoint_dir="/saved")) == [6, 4, 9]
    assert every_so_many_steps(replace(every, max_restarts=0)) == [4]
    assert every_so_many_steps(WorkerSettings(checkpoint_dir="/saved")) == []  # both by time
    assert every_so_many_steps(WorkerSettings(snapshot_every="0")) == []


class Sizes:
    """A pace of fixed sizes, which notes what begins."""

    def __init__(self, most: int) -> None:
        self._most, self.begun = most, list[int]()

    def most(self) -> int:
        return self._most

    def begins(self, steps: int) -> None:
        self.begun.append(steps)


def test_an_execution_ends_with_the_epoch_and_asks_for_nothing_behind_it() -> None:
    done: list[tuple[int, int]] = []

    def steps():
        for step in range(7):
            yield step, step, "iterator"
        assert done[-1] == (6, 6)  # only now

    pace = Sizes(3)
    for begin, end, iterator in together(steps(), 7, pace):
        assert iterator == "iterator"
        done.append((begin, end))
    assert done == [(0, 2), (3, 5), (6, 6)]
    assert pace.begun == [3, 3, 1]


def test_data_that_ends_too_early_ends_the_epoch() -> None:
    steps = [(step, step, None) for step in range(4)]
    assert [row[:2] for row in together(steps, 9, Sizes(3))] == [(0, 2), (3, 3)]


class OwnHook(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        pass


class OwnEpochs(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        pass


@pytest.mark.parametrize(
    ("callback", "sees"),
    [
        (keras.callbacks.History(), False),
        (keras.callbacks.ProgbarLogger(), False),
        (keras.callbacks.EarlyStopping("loss"), False),
        (OwnEpochs(), False),
        (OwnHook(), True),
        (keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None), True),
        (keras.callbacks.ModelCheckpoint("x.keras", save_freq=10), True),
        (keras.callbacks.ModelCheckpoint("x.keras"), False),
        (keras.callbacks.BackupAndRestore("x", save_freq=10), True),
        (keras.callbacks.TensorBoard("x"), False),
        (keras.callbacks.TensorBoard("x", profile_batch=5), True),
        (keras.callbacks.TensorBoard("x", write_steps_per_second=True), True),
        (keras.callbacks.TensorBoard("x", update_freq=9), True),
    ],
)
def test_who_looks_at_single_steps(callback: keras.callbacks.Callback, sees: bool) -> None:
    assert sees_every_step([callback]) == sees


def trained(steps: int | None) -> tuple[keras.Model, list[int]]:
    """A model that is trained with so many steps an execution, None for Keras's own function."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    seen: list[int] = []
    if steps is not None:
        apply(TRAINER)
        assert multi_step_function.can_count(model)
        multi_step_function.give(model).steps = steps
    data = iter(tf.data.Dataset.from_tensor_slices((X, X[:, :1])).repeat().batch(10))
    model.make_train_function()
    train: Any = model.train_function
    for _ in range(12 // (steps or 1)):
        train(data)
        seen.append(int(model.optimizer.iterations.numpy()))
    return model, seen


def test_the_bits_are_the_same_however_many_steps_there_are_in_a_call() -> None:
    one, _ = trained(None)
    for steps in (1, 3, 12):
        several, seen = trained(steps)
        assert seen == list(range(steps, 13, steps))
        for mine, theirs in zip(several.variables, one.variables, strict=True):
            np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


class Counted:
    """Stands in for executions whose steps take 2 ms, one of them outside Python."""

    def __init__(self) -> None:
        self.is_made, self.steps, self.done = False, 1, 0

    def seconds(self) -> float:
        return 0.001 * self.done


def test_auto_measures_and_then_chooses() -> None:
    counted: Any = Counted()
    pace = FitPace(counted, None, None, [40], clock=lambda: 0.002 * counted.done)
    assert pace.most() == 1  # not traced
    counted.is_made = True
    sizes = []
    while counted.done < 100:
        pace.stands_at(counted.done)
        sizes.append(pace.most())
        pace.begins(sizes[-1])
        counted.done += sizes[-1]
    measured = UNTIMED + TIMED
    assert sizes == [*[1] * measured, 40 - measured, MOST, 40 - MOST, MOST]


def test_what_is_not_keras_own_is_left_alone() -> None:
    class Own(keras.Sequential):
        def make_train_function(self, force=False):
            self.train_function = lambda iterator: {}

    assert not multi_step_function.can_count(Own([keras.layers.Dense(1)]))
    eager = keras.Sequential([keras.layers.Dense(1)])
    eager.compile("sgd", "mse", run_eagerly=True)
    assert not multi_step_function.can_count(eager)
