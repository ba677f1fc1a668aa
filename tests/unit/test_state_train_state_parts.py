"""`tfrun.TrainState` outside a job: an iterator with counters, and clear words for mistakes."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrun
from tfrun.job.errors import UsageError
from tfrun.state import train_state_parts
from tfrun.state.loop_keeper import in_use

X = np.arange(40, dtype=np.float32).reshape(10, 4)


def model_of() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


def state_of(**options) -> tfrun.TrainState:
    return tfrun.TrainState(**{"model": model_of(), "optimizer": keras.optimizers.SGD(), **options})


def plain() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(X).batch(4)


def exact() -> tfrun.Dataset:
    return tfrun.Dataset.from_arrays(X, batch_size=4)


def distributed():
    return tf.distribute.get_strategy().experimental_distribute_dataset(exact())


@pytest.mark.parametrize("make", [plain, exact, distributed])
def test_steps_are_the_epochs_of_the_data(make) -> None:
    state, seen, dataset = state_of(), [], make()
    for batch in state.steps(dataset, epochs=2):
        seen.append((state.step, state.epoch, state.step_in_epoch, float(batch[0][0])))
    assert seen == [(3 * e + s, e, s, 16.0 * s) for e in range(2) for s in range(3)]
    assert (state.step, state.epoch, state.step_in_epoch) == (6, 2, 0)
    # `epochs` counts those that are done.
    assert len(list(state.steps(dataset, epochs=2))) == 0
    assert len(list(state.steps(dataset, epochs=3))) == 3


def test_position_moves_with_the_steps() -> None:
    state, dataset = state_of(), exact()
    for _ in state.steps(dataset, epochs=1):
        if state.step == 1:
            break
    assert dataset.position == tfrun.Position(step=2)
    rest = [float(batch[0][0]) for batch in state.steps(dataset, epochs=1)]
    assert rest == [32.0]
    assert (state.step, state.epoch) == (3, 1)


def test_commit_counts() -> None:
    state = state_of()
    while state.step < 5:
        state.commit()
    assert (state.step, state.epoch) == (5, 0)


class Plain:
    def get_state(self):
        return {"a": 1}

    def set_state(self, state):
        self.state = state


class Odd(Plain):
    def get_state(self):
        return object()


class Unbuilt(keras.Model):
    def call(self, inputs):
        return inputs


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": None}, "`model` is None"),
        ({"model": "m"}, "`model` is 'm'"),
        ({"model": Unbuilt(name="mine")}, "'mine' .* has no Keras variables"),
        ({"model": [model_of(), Unbuilt()]}, "number 1"),
        ({"optimizer": None}, "`optimizer` is None"),
        ({"optimizer": "adam"}, "`optimizer` is 'adam'"),
        ({"metrics": ["accuracy"]}, "`metrics` holds 'accuracy'"),
        ({"scheduler": 3}, "`scheduler` is a int"),
        ({"scheduler": Odd()}, "`scheduler.get_state\\(\\)` .*a object is not plain data"),
    ],
)
def test_a_mistake_is_named(options, says) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        state_of(**options)
    assert caught.value.code == "TFRUN-508"


def test_commit_has_no_place_in_steps() -> None:
    state = state_of()
    with pytest.raises(UsageError, match=r"commit\(\) was called inside steps\(\)"):
        for _ in state.steps(plain(), epochs=1):
            state.commit()


def test_a_closed_state_does_no_more_steps() -> None:
    with state_of() as state:
        state.commit()
    state.close()
    with pytest.raises(UsageError, match="the state was closed"):
        state.commit()
    with pytest.raises(UsageError, match="the state was closed"):
        next(state.steps(plain(), epochs=1))


def test_an_optimizer_is_built_as_it_was() -> None:
    first, second = model_of(), model_of()
    made = [keras.optimizers.Adam(), keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())]
    there = train_state_parts.collect([first, second], made, (), {})
    assert there.trained() == [None, None]
    made[0].build(second.trainable_variables)
    made[1].build([first.trainable_variables[1]])
    assert there.trained() == [[2, 3], [1]]
    again = [keras.optimizers.Adam(), keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())]
    copy = train_state_parts.collect([model_of(), model_of()], again, (), {})
    copy.build(there.trained())
    assert copy.trained() == there.trained()
    shapes = [[v.shape for v in one.variables().values()] for one in (there, copy)]
    assert shapes[0] == shapes[1]
    # What the first optimizer does not update is nobody's, and has to be held.
    assert [name.split("/")[1] for name in there.ungated() if name.startswith("model/")] == ["0"]


def test_a_metric_that_was_reset_is_zero_and_others_are_not() -> None:
    reset, zero_so_far = [np.zeros(2), np.zeros(())], [np.zeros(()), np.array(8.0)]
    assert in_use([reset, zero_so_far]).tolist() == [0, 0, 0, 1, 1]
    assert in_use([]).tolist() == []
