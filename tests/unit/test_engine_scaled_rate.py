"""A multiplied learning rate: the script's own for the script, the other one for its weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest

from tfrun.engine import scaled_rate
from tfrun.engine.scaled_rate import RateScale
from tfrun.job.errors import UsageError
from tfrun.job.settings import WorkerSettings
from tfrun.patches.apply import apply
from tfrun.train.learning_rate import rate_of

HOW = RateScale(
    rule="linear", base_batch=8, batch=32, warmup_steps=4, steps_before=12, steps_after=3
)


@pytest.fixture(autouse=True)
def patched() -> None:
    apply()


def moves(optimizer: keras.optimizers.Optimizer, steps: int) -> list[float]:
    """How far each step goes under a gradient of 1."""
    found = []
    if not optimizer.built:
        optimizer.build([keras.Variable(0.0)])
    inner: Any = getattr(optimizer, "inner_optimizer", optimizer)
    (variable,) = inner._trainable_variables
    for _ in range(steps):
        before = float(variable)
        optimizer.apply([keras.ops.ones(())], [variable])
        found.append(before - float(variable))
    return found


def test_a_number_rises_to_its_value_and_stays_what_the_script_set() -> None:
    optimizer = keras.optimizers.SGD(0.1)
    assert not scaled_rate.scale(optimizer, HOW)
    np.testing.assert_allclose(moves(optimizer, 6), [0.1, 0.175, 0.25, 0.325, 0.4, 0.4], rtol=1e-5)
    assert float(optimizer.learning_rate) == pytest.approx(0.1)
    optimizer.learning_rate = 0.05  # a callback
    np.testing.assert_allclose(moves(optimizer, 1), [0.2], rtol=1e-5)
    assert rate_of(optimizer)["rate"] == pytest.approx(0.2)


def test_a_schedule_goes_on_by_samples() -> None:
    steps = keras.optimizers.schedules.PiecewiseConstantDecay([8, 12], [0.1, 0.01, 0.001])
    made: Any = keras.optimizers.SGD
    optimizer = made(steps)
    scaled_rate.scale(optimizer, replace(HOW, warmup_steps=0))
    np.testing.assert_allclose(moves(optimizer, 5), [0.4, 0.4, 0.4, 0.04, 0.004], rtol=1e-4)
    assert rate_of(optimizer) == {
        "schedule": "PiecewiseConstantDecay",
        **{"rule": "linear", "base_batch": 8, "warmup_steps": 0, "factor": 4.0},
    }


def test_no_step_is_too_large_for_an_integer() -> None:
    how = replace(HOW, steps_before=10**6, steps_after=10**6)
    assert int(how.step_before(keras.ops.convert_to_tensor(10**6, "int32"))) == 10**6


def test_weight_decay_and_a_scaled_loss_take_the_same_rate() -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=1.0)
    scaled_rate.scale(optimizer, replace(HOW, warmup_steps=0))
    np.testing.assert_allclose(moves(optimizer, 1), [0.4], rtol=1e-5)
    decays = keras.optimizers.SGD(0.1, weight_decay=0.5)
    scaled_rate.scale(decays, replace(HOW, warmup_steps=0))
    variable = keras.Variable(1.0)
    decays.apply([keras.ops.zeros(())], [variable])
    assert float(variable) == pytest.approx(1 - 0.4 * 0.5)


def test_only_a_change_of_numbers_is_one() -> None:
    optimizer = keras.optimizers.SGD(0.1)
    found = [scaled_rate.scale(optimizer, how) for how in (HOW, HOW, replace(HOW, batch=16))]
    assert found == [False, False, True]


def test_an_update_that_nobody_scales_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled_rate, "settings", lambda: WorkerSettings(batch_times=2))
    with pytest.raises(UsageError, match="TFRUN-107: --scale-batch enlarges the batches of fit"):
        moves(keras.optimizers.SGD(0.1), 1)
