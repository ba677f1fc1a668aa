"""What is kept of a `fit`."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tfrun.train.keeper import Keeper, steps_of

X = np.random.RandomState(0).rand(24, 4).astype("float32")


def fitted(optimizer: keras.optimizers.Optimizer) -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    model.fit(X, X[:, :1], batch_size=4, verbose=0)
    return model


@pytest.mark.parametrize(("accumulation", "steps"), [(None, 6), (3, 2)])
def test_steps_of_an_optimizer(accumulation, steps) -> None:
    model = fitted(keras.optimizers.SGD(gradient_accumulation_steps=accumulation))
    assert steps_of(model.optimizer) == steps
    keeper = Keeper(model, None, [], call=0)
    keeper.epoch_begins(0)
    kept = keeper.state()
    assert kept is not None and kept.values["iterations"] == steps


def test_no_optimizer_has_done_no_step() -> None:
    assert steps_of(None) == 0
