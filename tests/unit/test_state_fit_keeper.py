"""What is kept of a `fit`."""

from __future__ import annotations

import random
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrun.data import global_random
from tfrun.data.keras.fit_plan import FitPlan
from tfrun.engine import commit, script_state, variable_values
from tfrun.engine.variable_values import GLOBAL_SEED
from tfrun.state import random_state
from tfrun.state.fit_keeper import FitKeeper, steps_of

X = np.random.RandomState(0).rand(24, 4).astype("float32")


def fitted(optimizer: keras.optimizers.Optimizer) -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    model.fit(X, X[:, :1], batch_size=4, verbose=0)
    return model


@pytest.mark.parametrize("wrap", [lambda one: one, keras.optimizers.LossScaleOptimizer])
@pytest.mark.parametrize("accumulation", [None, 4])
def test_steps_of_an_optimizer(wrap, accumulation) -> None:
    steps = 6  # also those that update nothing yet
    model = fitted(wrap(keras.optimizers.SGD(gradient_accumulation_steps=accumulation)))
    assert steps_of(model.optimizer) == steps
    keeper = FitKeeper(model, None, [], None, FitPlan(), call=0)
    keeper.epoch_begins(0)
    kept = keeper.state()
    assert kept is not None and kept.values["iterations"] == steps


def test_no_optimizer_has_done_no_step() -> None:
    assert steps_of(None) == 0


def in_an_execution(*layers: keras.layers.Layer, per_run: int = 1) -> tuple[FitKeeper, Any]:
    """A keeper in the middle of an execution of four steps, and what does one of its steps."""
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    made, _ = commit.made_for([model.optimizer], [])
    made.per_run = per_run
    keeper = FitKeeper(model, made, [], None, FitPlan(), call=0)
    keeper.epoch_begins(0, 8)
    keeper.per_execution = 4
    keeper.step_begins()
    kernel = model.trainable_variables[-2]

    def update() -> None:
        made.begun.assign_add(1)
        kernel.assign(kernel + 1.0)
        made.steps.assign_add(1)

    kernel.assign(keras.ops.zeros_like(kernel))
    return keeper, update


def kept_of(keeper: FitKeeper) -> tuple[int, float]:
    """The step of the epoch, and the weight that has counted the updates."""
    kept = keeper.state()
    assert kept is not None
    (name,) = [name for name in kept.arrays if name.endswith("kernel")]
    return kept.place.step, float(kept.arrays[name].ravel()[0])


def test_of_an_execution_all_whole_steps_are_kept() -> None:
    keeper, update = in_an_execution()
    for done in range(1, 5):
        update()
        assert kept_of(keeper) == (8 + done, done)


def test_what_steps_change_unseen_sends_the_execution_back_to_its_beginning() -> None:
    keeper, update = in_an_execution(keras.layers.BatchNormalization())
    keeper.step_begins()  # with the weight at zero
    for _ in range(3):
        update()
        assert kept_of(keeper) == (8, 0.0)
    update()
    assert kept_of(keeper) == (12, 4.0)


def test_in_the_middle_of_a_step_of_two_updates_it_has_not_been_made() -> None:
    keeper, update = in_an_execution(per_run=2)
    keeper.step_begins()
    for expected in [(8, 0.0), (9, 2.0), (8, 0.0), (10, 4.0)]:
        update()
        assert kept_of(keeper) == expected


def test_what_a_cut_off_step_was_traced_with_goes_back_in_a_process_that_stays(monkeypatch) -> None:
    keeper, _ = in_an_execution()
    made = keras.random.SeedGenerator(5)
    monkeypatch.setattr(variable_values, "global_seed", lambda: made.state)
    keeper.is_traced()
    before = made.state.numpy()
    made.next()
    for how in ({"whole": False}, {"traced": True}):
        kept = keeper.state(**how)
        assert kept is not None and np.array_equal(kept.arrays[GLOBAL_SEED], before)
    fresh = keeper.state()  # a process that is new makes it as it traces
    assert fresh is not None and GLOBAL_SEED not in fresh.arrays
    kept = keeper.state(whole=False)
    assert kept is not None
    keeper.take_back(kept)
    assert np.array_equal(made.state.numpy(), before)
    made.next()
    keeper.step_returned(12, {})
    kept = keeper.state()
    assert kept is not None and not np.array_equal(kept.arrays[GLOBAL_SEED], before)


@pytest.mark.parametrize("whole", [True, False])
def test_what_python_draws_in_a_step_is_drawn_again(monkeypatch, whole: bool) -> None:
    monkeypatch.setattr(script_state, "calls_python", True)
    keeper, update = in_an_execution()
    keeper.step_returned(12, {})  # the epoch's first one
    keeper.step_begins()
    first = np.random.rand()
    kept = keeper.state(whole=whole)
    assert kept is not None
    random_state.put_back(kept.values["random"], kept.arrays)
    assert np.random.rand() == first
    for _ in range(4):
        update()
    done = keeper.state(whole=whole)  # it was made, and what it has drawn is drawn
    assert done is not None
    follows = np.random.rand()
    random_state.put_back(done.values["random"], done.arrays)
    assert np.random.rand() == follows != first


def test_who_goes_on_in_an_epoch_keeps_what_the_generators_held_then() -> None:
    """Data that it reads on may have drawn for later steps already, in another thread."""
    then = random_state.take()
    random.random()
    keeper = FitKeeper(fitted(keras.optimizers.SGD()), None, [], None, FitPlan(), call=0)
    keeper.epoch_begins(0, 2, then)
    kept = keeper.state()
    assert kept is not None
    held = random_state.decode(kept.values["random"], kept.arrays)
    assert global_random.are_equal(held, then)
    assert not global_random.are_equal(held, random_state.take())


@pytest.mark.parametrize("trained", [False, True])
def test_what_data_draws_when_its_epoch_ends_anew_counts(trained: bool) -> None:
    """`PyDataset.on_epoch_end`; whose epoch has ended before is not told again."""
    keeper = FitKeeper(fitted(keras.optimizers.SGD()), None, [], None, FitPlan(), call=0)
    then = random_state.take()
    keeper.epoch_begins(0, 6, then, trained=trained)
    np.random.rand()
    now = random_state.take()
    keeper.epoch_trained()
    kept = keeper.state()
    assert kept is not None
    held = random_state.decode(kept.values["random"], kept.arrays)
    assert global_random.are_equal(held, then if trained else now)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("make", [keras.optimizers.SGD, keras.optimizers.Adam])
def test_a_state_is_no_copy_and_stays_as_it_was(make, jit) -> None:
    """With an embedding, whose rows an update writes where they stand: reads copy that one."""
    model = keras.Sequential([keras.layers.Embedding(5, 3), keras.layers.Dense(1)])
    model.compile(make(0.1), "mse", jit_compile=jit)
    rows = np.arange(20).reshape(10, 2) % 5
    model.fit(rows, X[:10, :2], verbose=0)
    keeper = FitKeeper(model, None, [], None, FitPlan(), call=0)
    keeper.epoch_begins(0)
    kept = keeper.state()
    assert kept is not None
    before = {name: array.copy() for name, array in kept.arrays.items()}
    held = variable_values.all_variables(model)
    table, kernel = (next(n for n in held if n.endswith(end)) for end in ("embeddings", "kernel"))
    now = np.asarray(variable_values.hold([held[kernel]])[0])
    assert np.shares_memory(kept.arrays[kernel], now)
    del now
    model.fit(rows, X[:10, :2], epochs=2, verbose=0)
    for name in (table, kernel):
        assert not np.array_equal(variable_values.hold([held[name]])[0], before[name])
    assert all(np.array_equal(kept.arrays[name], value) for name, value in before.items())


def test_room_is_made_for_what_has_a_shape() -> None:
    model = fitted(keras.optimizers.Adam())
    of_script = {"any": tf.Variable([1.0], shape=tf.TensorShape(None)), "text": tf.Variable("a")}
    found = variable_values.all_variables(model) | of_script
    variable_values.make_room(found.values())
