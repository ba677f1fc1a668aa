"""The learning rate rules."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tfrun.job.errors import UsageError
from tfrun.train.learning_rate import scaled_lr


@pytest.mark.parametrize(("rule", "expected"), [("linear", 0.4), ("sqrt", 0.2), ("none", 0.1)])
def test_each_rule(rule, expected):
    schedule = scaled_lr(0.1, rule=rule, base_batch=64, batch=256)
    assert float(schedule(0)) == pytest.approx(expected)
    assert float(schedule(10**6)) == pytest.approx(expected)
    assert f"{expected:g}" in str(schedule)


def test_the_warm_up_rises_from_the_base_and_stays_at_the_target():
    schedule = scaled_lr(0.1, base_batch=32, batch=128, warmup_steps=10)
    rates = [float(schedule(step)) for step in range(15)]
    np.testing.assert_allclose(rates[:11], np.linspace(0.1, 0.4, 11), rtol=1e-6)
    np.testing.assert_allclose(rates[10:], 0.4, rtol=1e-6)


def test_a_smaller_batch_never_sees_the_higher_rate():
    schedule = scaled_lr(0.1, base_batch=128, batch=32, warmup_steps=10)
    assert [float(schedule(step)) for step in (0, 5, 10)] == pytest.approx([0.025] * 3)


def test_an_optimizer_with_it_survives_saving():
    schedule = scaled_lr(0.1, rule="sqrt", base_batch=32, batch=128, warmup_steps=4)
    config = keras.optimizers.serialize(keras.optimizers.SGD(schedule))
    again = keras.optimizers.deserialize(config)
    again.iterations.assign(2)
    assert float(again.learning_rate) == pytest.approx(float(schedule(2)))


@pytest.mark.parametrize(
    "options",
    [
        {"rule": "cubic"},
        {"base": 0.0},
        {"base": float("nan")},
        {"base_batch": 0},
        {"batch": -1},
        {"warmup_steps": -1},
    ],
)
def test_wrong_input_is_refused(options):
    good = {"base": 0.1, "base_batch": 32, "batch": 64}
    with pytest.raises(UsageError, match="TFRUN-607"):
        scaled_lr(**{**good, **options})
