"""Which settings of a training have to be the same on all workers."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import keras

from tfrun.train.same_settings import difference, digest, settings_of


def settings(config: dict, **arguments) -> dict[str, str]:
    optimizer = SimpleNamespace(get_config=lambda: config)
    return settings_of(SimpleNamespace(optimizer=optimizer), arguments)


def test_plain_values_count_and_what_a_worker_has_of_its_own_does_not() -> None:
    one = settings({"name": "sgd", "learning_rate": 0.1}, batch_size=8, verbose=1, x=[1], self=0j)
    two = settings({"name": "sgd_1", "learning_rate": 0.1}, batch_size=8, verbose=0, x=[2], self=1j)
    assert one == two and digest(one) == digest(two)
    assert one["optimizer.learning_rate"] == "0.1" and one["batch_size"] == "8"


def test_a_difference_is_named_with_both_values() -> None:
    rates = [{"learning_rate": {"config": {"decay": rate}}} for rate in (0.1, 0.1, 0.2)]
    told = [settings(rate, epochs=2) for rate in rates]
    assert len({digest(one) for one in told}) == 2
    assert difference(told) == (
        "optimizer.learning_rate.config.decay is 0.1 on worker 0, and 0.2 on worker 2"
    )
    assert difference(told[:2]) == ""


def test_an_optimizer_without_a_config_is_known_by_its_kind() -> None:
    assert settings_of(SimpleNamespace(optimizer=object()), {}) == {"optimizer": "object"}
    assert settings_of(SimpleNamespace(optimizer=None), {"epochs": 1}) == {"epochs": "1"}


def test_a_config_is_read_where_it_warns_of_a_lambda() -> None:
    def get_config() -> dict:
        warnings.warn("a lambda is serialized", stacklevel=2)
        return {"learning_rate": 0.1}

    optimizer = SimpleNamespace(get_config=get_config)
    assert "optimizer.learning_rate" in settings_of(SimpleNamespace(optimizer=optimizer), {})


def test_numbers_of_layers_and_losses_count() -> None:
    def of(l2: float, smoothing: float = 0.0, weights: tuple[float, ...] = (1.0,), **call) -> dict:
        decay = keras.regularizers.L2(l2)
        inner = keras.Sequential([keras.layers.Dense(2, kernel_regularizer=decay)])
        model = keras.Sequential([keras.Input((2,)), inner, keras.layers.Dropout(0.1)])
        loss = keras.losses.CategoricalCrossentropy(label_smoothing=smoothing)
        model.compile("sgd", [loss], loss_weights=list(weights))
        return settings_of(model, call)

    assert of(0.1) == of(0.1), "the names of layers, or drawn seeds, count"
    assert difference([of(0.1), of(0.2)]) == (
        "layer 3 (Dense).kernel_regularizer.config.l2 is 0.1 on worker 0, and 0.2 on worker 1"
    )
    assert "label_smoothing is 0.0 " in difference([of(0.1), of(0.1, 0.5)])
    assert "loss_weights.0 is 1.0 " in difference([of(0.1), of(0.1, weights=(2.0,))])
    weights = [of(0.1, class_weight={0: 1.0, 1: weight}) for weight in (1.0, 5.0)]
    assert difference(weights) == "class_weight.1 is 1.0 on worker 0, and 5.0 on worker 1"
    rates = [keras.optimizers.schedules.PiecewiseConstantDecay([5], [0.1, r]) for r in (0.1, 0.2)]
    told = [settings({"learning_rate": {"config": rate.get_config()}}) for rate in rates]
    assert difference(told) == (
        "optimizer.learning_rate.config.values.1 is 0.1 on worker 0, and 0.2 on worker 1"
    )
