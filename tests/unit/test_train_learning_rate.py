"""The learning rate rules."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfrun
from tfrun import scaled_lr
from tfrun.job.errors import UsageError


@pytest.mark.parametrize(("rule", "expected"), [("linear", 0.4), ("sqrt", 0.2), ("none", 0.1)])
def test_each_rule(rule, expected):
    schedule = scaled_lr(0.1, rule=rule, base_batch=64, batch=256)
    assert float(schedule(0)) == pytest.approx(expected)
    assert float(schedule(10**6)) == pytest.approx(expected)
    assert schedule.describe()["rate"] == pytest.approx(expected)


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


x = np.random.RandomState(0).rand(48, 4).astype("float32")
y = x.sum(axis=1, keepdims=True)


def model_with(schedule):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(schedule), "mse")
    return model


def after_one_step(model, data, **options):
    """The rate with which one step was really made."""
    before = model.get_weights()[0]
    inputs = x[: options["batch_size"]] if options else x[:8]
    targets = y[: len(inputs)]
    error = 2 * (inputs @ before + model.get_weights()[1] - targets)
    gradient = inputs.T @ error / len(inputs)
    model.fit(*data, shuffle=False, steps_per_epoch=1, verbose=0, **options)
    return float(np.median((before - model.get_weights()[0]) / gradient))


def test_fit_tells_it_the_batch_each_time_and_traced_steps_follow():
    model = model_with(scaled_lr(0.01, base_batch=16))
    for batch in (16, 48, 8):  # the step is traced once
        assert after_one_step(model, (x, y), batch_size=batch) == pytest.approx(
            0.01 * batch / 16, rel=1e-3
        )
        assert float(model.optimizer.learning_rate) == pytest.approx(0.01 * batch / 16)


@pytest.mark.parametrize(
    "data",
    [
        lambda: tfrun.Dataset.from_arrays((x, y), batch_size=8),
        lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(8).prefetch(1),
        lambda: (
            tf.data.Dataset.from_tensor_slices((x, y))
            .batch(8, drop_remainder=True)
            .map(lambda a, b: (a, b))
        ),
    ],
)
def test_it_knows_the_batch_of_other_data(data):
    model = model_with(scaled_lr(0.01, base_batch=16))
    assert after_one_step(model, (data(),)) == pytest.approx(0.005, rel=1e-3)


def test_by_default_the_base_is_that_of_a_batch_of_256():
    schedule = scaled_lr(0.1)
    schedule.begin(64)
    assert float(schedule(0)) == pytest.approx(0.025)


def test_an_unknown_batch_has_to_be_stated():
    schedule = scaled_lr(0.1)
    with pytest.raises(UsageError, match=r"TFRUN-607.*batch="):
        schedule(0)

    def batches():
        while True:
            yield x[:8], y[:8]

    with pytest.raises(UsageError, match=r"TFRUN-607.*batch="):
        model_with(schedule).fit(batches(), steps_per_epoch=1, shuffle=False, verbose=0)
    model_with(scaled_lr(0.1, batch=8)).fit(batches(), steps_per_epoch=1, shuffle=False, verbose=0)
    model_with(scaled_lr(0.1, rule="none")).fit(
        batches(), steps_per_epoch=1, shuffle=False, verbose=0
    )


def test_a_stated_batch_is_not_overruled():
    schedule = scaled_lr(0.1, base_batch=16, batch=32)
    model_with(schedule).fit(x, y, batch_size=8, verbose=0)
    assert schedule.target == pytest.approx(0.2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Keras's own, of numpy
def test_a_saved_model_has_the_rate_until_it_is_trained_again(tmp_path):
    model = model_with(scaled_lr(0.01, base_batch=16, warmup_steps=2))
    model.fit(x, y, batch_size=24, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert float(again.optimizer.learning_rate) == pytest.approx(0.015)
    again.fit(x, y, batch_size=8, verbose=0)
    assert float(again.optimizer.learning_rate) == pytest.approx(0.005)


def test_train_state_tells_it_the_batch():
    model = model_with(scaled_lr(0.01, base_batch=16))
    data = tfrun.Dataset.from_arrays((x, y), batch_size=8)
    state = tfrun.TrainState(model=model, optimizer=model.optimizer)
    rates = [float(model.optimizer.learning_rate) for _ in state.steps(data, epochs=1)]
    assert rates == pytest.approx([0.005] * 6)


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
